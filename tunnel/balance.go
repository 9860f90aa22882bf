package tunnel

import (
	"context"
	"slices"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

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

// After a rolling restart the replica that came last has few agents. So replicas tell each
// other how many sessions they have, and one that has far more than its share asks some
// agents to look for another server.
const (
	balanceEvery = 10 * time.Second
	balancePart  = 100 // one session of so many moves at a time: each is a handshake
	balanceSlack = 8   // so many above the share, and an eighth of it, are not too many
	maxShare     = 2   // times the mean: a replica has no more for the sake of zones
)

// balance runs until ctx ends.
func (p *peers) balance(ctx context.Context) {
	for backoff.Sleep(ctx, balanceEvery); ctx.Err() == nil; backoff.Sleep(ctx, balanceEvery) {
		own := p.server.registry.countServing()
		p.tellLoad(own)
		if p.hasElsewhere() && p.server.moveApart(own/balancePart+1) {
			continue
		}
		if n := p.surplus(own); n > 0 {
			p.server.moveSessions(n)
		}
	}
}

// tellLoad tells the replicas that don't know it how many sessions are here.
func (p *peers) tellLoad(own int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for in := range p.inbound {
		if max(own-in.toldLoad, in.toldLoad-own) > own/16 {
			in.toldLoad = own
			in.Send(wire.New(wire.MsgLoad).AddUint(wire.TagLimit, uint64(own)))
		}
	}
}

// surplus returns how many of the sessions are to go elsewhere now: none unless there are
// clearly more than this replica's share.
func (p *peers) surplus(own int) int {
	if p.isDraining() {
		return 0
	}
	others := p.connectedPeers()
	sum := own
	for _, l := range others {
		load := l.load.Load()
		if load < 0 {
			return 0 // it has just come, or is older than LOAD
		}
		sum += int(load)
	}
	zones := map[string]int{p.ownZone(): 1}
	for _, l := range others {
		zones[l.zone()]++
	}
	share := fairShare(sum, zones, p.ownZone())
	if own <= share+share/8+balanceSlack {
		return 0
	}
	return min(own-share, own/balancePart+1)
}

// fairShare returns how many of sum sessions are to be at a replica in the zone own; zones
// says how many replicas are in each zone. They are spread evenly, unless one zone has more
// than half of the replicas: each agent is to have a session elsewhere, too.
func fairShare(sum int, zones map[string]int, own string) int {
	all, largest := 0, 0
	for _, n := range zones {
		all, largest = all+n, max(largest, n)
	}
	elsewhere := all - largest
	if zones[""] > 0 || elsewhere == 0 || largest <= elsewhere {
		return sum / all
	}
	share := min(sum/2/elsewhere, maxShare*sum/all) // of a replica elsewhere
	if zones[own] == largest {
		return (sum - share*elsewhere) / largest
	}
	return share
}

// moveSessions asks n agents to look for another server, by sessions without streams. An
// agent with no other session stays; it is asked again once all were.
func (s *Server) moveSessions(n int) {
	all := s.registry.allSessions()
	for _, sess := range all {
		if n == 0 {
			return
		}
		if !sess.asked && sess.askToMove() {
			sess.asked = true
			n--
		}
	}
	for _, sess := range all {
		sess.asked = false
	}
}

// moveApart asks up to n agents whose two sessions came into this zone. It reports whether
// there was one.
func (s *Server) moveApart(n int) (any bool) {
	for _, sess := range s.registry.sessionsWhere(func(sess *agentSession) bool { return sess.together }) {
		if n > 0 && sess.askToMove() {
			sess.together = false
			any = true
			n--
		}
	}
	return any
}

// askToMove asks the agent to look for another server, unless the session has streams.
func (sess *agentSession) askToMove() bool {
	if sess.Retired() || sess.OpenStreams() > 0 {
		return false
	}
	sess.sendOrClose(wire.New(wire.MsgMove))
	return true
}
