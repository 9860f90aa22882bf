package tunnel

import (
	"context"
	"maps"
	"slices"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// ZoneMembership is a [Membership] that knows in which zone each replica is, such as a
// zone of a cloud. If all zones are known,
//
//   - the two sessions of an agent are in two zones, if it reaches replicas of two zones
//     within some tries;
//   - a dial that is forwarded goes to a replica in the own zone, unless another one
//     answers first;
//   - a zone with more than half of the replicas has only half of the sessions; but no
//     replica has more than twice the average for that.
//
// A replica takes its own zone from the address that leads to itself.
type ZoneMembership interface {
	Membership
	// WatchZones is called instead of Watch. The keys of zones are the addresses, the
	// values their zones; empty for an unknown one. Set does not keep the map.
	WatchZones(ctx context.Context, set func(zones map[string]string)) error
}

// watchPeers calls the Watch of Peers, or its WatchZones.
func (p *peers) watchPeers(ctx context.Context) error {
	if m, ok := p.server.Peers.(ZoneMembership); ok {
		return m.WatchZones(ctx, func(zones map[string]string) { p.setAddresses(slices.Sorted(maps.Keys(zones)), zones) })
	}
	return p.server.Peers.Watch(ctx, func(addresses []string) { p.setAddresses(addresses, nil) })
}

func (p *peer) setZone(zone string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.zone = zone
}

// zone returns the zone of the replica; empty if it is not known.
func (l *outboundPeer) zone() string {
	l.peer.mu.Lock()
	defer l.peer.mu.Unlock()
	return l.peer.zone
}

// ownZone returns the zone of this replica; empty if it is not known.
func (p *peers) ownZone() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.byAddr {
		if zone := peer.zoneOfSelf(); zone != "" {
			return zone
		}
	}
	return ""
}

// zoneOfSelf returns the zone of the address if that is this replica's own.
func (p *peer) zoneOfSelf() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.self {
		return ""
	}
	return p.zone
}

// holdsOwnZone reports whether the agent has a session with another replica in the zone of
// this one, and would rather have its second one elsewhere.
func (p *peers) holdsOwnZone(hello *wire.Message) bool {
	held, own := hello.Texts(wire.TagHeld), p.ownZone()
	if len(held) == 0 || hello.Uint(wire.TagAgain) == 0 || own == "" {
		return false
	}
	return slices.ContainsFunc(p.connectedPeers(), func(l *outboundPeer) bool { return l.zone() == own && slices.Contains(held, l.name) })
}

// hasElsewhere reports whether a replica in another zone takes sessions. One that has far
// more than the others does not: it may be the only one in its zone.
func (p *peers) hasElsewhere() bool {
	others, own, sum := p.connectedPeers(), p.ownZone(), 0
	if own == "" || len(others) == 0 {
		return false
	}
	for _, l := range others {
		sum += max(int(l.load.Load()), 0)
	}
	most := maxShare*sum/len(others) + balanceSlack
	return slices.ContainsFunc(others, func(l *outboundPeer) bool {
		zone := l.zone()
		return zone != "" && zone != own && !l.IsSuspect() && int(l.load.Load()) < most
	})
}
