package tunnel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mask"
	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// peers are the other replicas of a Server. There is a session in each direction:
// this replica forwards dials by the outbound one, and serves them by the inbound
// one. The zero value has no replicas.
type peers struct {
	server *Server
	id     string       // of this process
	group  *group.Group // of the keepers and links; nil before start

	places *admission.Admission // of inbound
	pushes chan struct{}        // filled by those for other replicas

	mu       sync.Mutex    // guards the fields below
	asked    time.Time     // when Watch of Peers was called; zero: not yet
	listed   chan struct{} // closed once Peers has named the replicas; nil before asked
	closed   bool
	draining bool
	byAddr   map[string]*peer
	outbound map[*outboundPeer]bool
	inbound  map[*inboundPeer]bool
	err      error     // of Peers, the last
	left     time.Time // when the last session of either direction ended; zero: none has

	holders holders
}

// start looks for the other replicas, unless it does so already. From here on
// agents may connect, so the Server is not draining any more.
func (p *peers) start() {
	p.mu.Lock()
	again := p.draining
	p.draining = false
	p.watchLocked()
	p.mu.Unlock()
	if again {
		p.server.announceServers()
	}
}

// watchLocked starts to watch Peers, until close.
func (p *peers) watchLocked() {
	if p.server.Peers == nil || p.listed != nil || p.closed {
		return
	}
	p.asked, p.listed = time.Now(), make(chan struct{})
	p.group = group.New(context.Background())
	p.group.Go(p.watchMembers)
	p.group.Go(func() { p.balance(p.group.Accepting()) })
}

// close drains the sessions until ctx ends, and waits for the goroutines.
func (p *peers) close(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	g := p.group
	p.mu.Unlock()
	if g != nil {
		g.Drain(ctx)
	}
}

// watchMembers watches Peers, again and again.
func (p *peers) watchMembers() {
	b := &backoff.Backoff{First: time.Second}
	for ctx := p.group.Accepting(); ctx.Err() == nil; {
		began := time.Now()
		err := p.server.Peers.Watch(ctx, p.setAddresses)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		backoff.Sleep(ctx, b.Next(time.Since(began)))
	}
}

// isClosed reports whether the channel is closed. Nothing is ever sent on it.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// setAddresses keeps a session with each of the addresses, and with no other.
func (p *peers) setAddresses(zones map[string]string) {
	defer p.holders.forgetAll()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(zones) > 0 { // a list without this replica is doubtful
		p.err = nil
	}
	if !isClosed(p.listed) {
		close(p.listed)
	}
	for address, kept := range p.byAddr {
		if _, listed := zones[address]; !listed {
			kept.cancel()
			delete(p.byAddr, address)
		}
	}
	for address, zone := range zones {
		if known := p.byAddr[address]; known != nil {
			known.update(func() { known.zone = zone })
			continue
		}
		kept := &peer{peers: p, dialAddress: address, address: mask.Address(address), zone: zone, tried: make(chan struct{}), came: make(chan struct{}, 1), pace: turns.Pace{Burst: requestBurst, Rate: requestRate}}
		ctx, cancel := context.WithCancel(p.group.Accepting())
		kept.cancel = cancel
		if !p.group.Go(func() { kept.run(ctx) }) {
			cancel()
			return
		}
		if p.byAddr == nil {
			p.byAddr = map[string]*peer{}
		}
		p.byAddr[address] = kept
	}
}

// connected returns the sessions that take dials, one for each replica.
func (p *peers) connectedPeers() []*outboundPeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.DeleteFunc(slices.Collect(maps.Keys(p.outbound)), func(l *outboundPeer) bool { return !l.TakesStreams() })
	slices.SortFunc(all, func(a, b *outboundPeer) int {
		return cmp.Or(strings.Compare(a.name, b.name), b.Since.Compare(a.Since))
	})
	return slices.CompactFunc(all, func(a, b *outboundPeer) bool { return a.name == b.name })
}

// untried returns the peers whose first connection has neither come nor failed.
func (p *peers) untriedPeers() []*peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(p.byAddr)), func(peer *peer) bool { return isClosed(peer.tried) })
}

// isAlone reports whether there is no other replica, and none that may still
// come.
func (p *peers) isAlone() bool {
	return p.server.Peers == nil || !p.awaitsList() && len(p.untriedPeers()) == 0 && len(p.connectedPeers()) == 0
}

// awaitsList reports whether Peers is about to name the other replicas: it
// was not asked yet, or a short time ago.
func (p *peers) awaitsList() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed && !isClosed(p.listed) && (p.asked.IsZero() || time.Since(p.asked) < wire.StartupTimeout)
}

var errNoList = errors.New("no answer from Peers yet")

// memberError returns why the other replicas are not known; nil if they are.
func (p *peers) memberError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.server.Peers != nil && !p.closed && !isClosed(p.listed) {
		return errNoList
	}
	return p.err
}

// awaitList waits until Peers has named the other replicas for the first time, for as long as ctx, ConnectTimeout and StartupTimeout allow.
func (p *peers) awaitList(ctx context.Context) {
	p.mu.Lock()
	p.watchLocked() // a Server that does not serve yet may dial
	listed, group, patience := p.listed, p.group, min(wire.ConnectTimeout, time.Until(p.asked.Add(wire.StartupTimeout)))
	p.mu.Unlock()
	if listed == nil || isClosed(listed) || patience <= 0 {
		return
	}
	select {
	case <-listed:
	case <-time.After(patience):
	case <-group.Accepting().Done():
	case <-ctx.Done():
	}
}

// isStarting reports whether this replica has just begun, and it is not known yet
// which of the others can be connected.
func (p *peers) isStarting() bool {
	if p.server.Peers == nil || time.Since(p.server.began) >= wire.StartupTimeout {
		return false
	}
	// If Peers has failed, the server is ready: it may have agents of its own.
	return p.awaitsList() && errors.Is(p.memberError(), errNoList) || len(p.untriedPeers()) > 0
}

// unreachableSince returns since when no other replica could be reached, and why. err
// is nil while one has a session with this one, or its host answers, and if there is
// no other replica.
func (p *peers) unreachableSince() (since time.Time, err error) {
	p.mu.Lock()
	since = p.left
	connected := len(p.outbound)+len(p.inbound) > 0
	p.mu.Unlock()
	rows := p.statusRows()
	answers := func(r peerStatus) bool {
		return r.err == nil || errors.Is(r.err, syscall.ECONNREFUSED) || r.isMisconfigured()
	}
	if connected || len(rows) == 0 || slices.ContainsFunc(rows, answers) {
		return since, nil
	}
	return since, p.missingAnswers(0)
}

// replicaNames returns names of replicas that run, maxAnnounced at most; this one's is
// the first, unless it drains. Those in before stay if they run. Then come the replicas
// that were connected last, since a rolling restart has them behind it. ok is false once
// peers is closed: agents are not told any more.
func (p *peers) replicaNames(before []string) (names []string, ok bool) {
	others := p.connectedPeers()
	slices.SortStableFunc(others, func(a, b *outboundPeer) int {
		return cmp.Or(trueFirst(slices.Contains(before, a.name), slices.Contains(before, b.name)), b.Since.Compare(a.Since))
	})
	for _, l := range others[:min(len(others), maxAnnounced-1)] {
		names = append(names, l.name)
	}
	slices.Sort(names)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.draining {
		names = append([]string{p.server.name}, names...)
	}
	return names, !p.closed
}

// startDraining tells the agents which replicas are left.
func (p *peers) startDraining() {
	p.mu.Lock()
	was := p.draining
	p.draining = true
	p.mu.Unlock()
	if !was {
		p.server.announceServers()
	}
}

func (p *peers) isDraining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

func (p *peers) addOutbound(l *outboundPeer) {
	defer p.holders.forgetAll()
	p.mu.Lock()
	if p.outbound == nil {
		p.outbound = map[*outboundPeer]bool{}
	}
	p.outbound[l] = true
	p.mu.Unlock()
	p.server.announceSoon()
}

func (p *peers) removeOutbound(l *outboundPeer) {
	defer p.holders.forgetAll()
	p.mu.Lock()
	delete(p.outbound, l)
	p.left = time.Now()
	p.mu.Unlock()
	p.server.announceSoon()
}

func (p *peers) addInbound(g *inboundPeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbound == nil {
		p.inbound = map[*inboundPeer]bool{}
	}
	for other := range p.inbound {
		if other.host == g.host {
			g.from = other.from
		}
	}
	if g.from == nil {
		g.from = &peerHost{turns.Pace{Burst: requestBurst, Rate: requestRate}, turns.NewStarts(maxForwards, forwardTime)}
	}
	g.Pace = &g.from.pace
	p.inbound[g] = true
	for _, peer := range p.byAddr {
		peer.retryNow(g.name)
	}
}

func (p *peers) removeInbound(g *inboundPeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.inbound, g)
	p.left = time.Now()
}

// tellArrival tells the replicas that an agent of the cluster is here.
func (p *peers) tellArrival(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for in := range p.inbound {
		in.Send(wire.New(wire.MsgArrived).AddString(wire.TagCluster, cluster))
	}
}

// inboundOf returns the inbound sessions that belong to the group.
func (p *peers) inboundOf(g *group.Group) []*inboundPeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(p.inbound)), func(in *inboundPeer) bool { return in.Group != g })
}

// closeUntrusted closes the sessions with replicas whose certificate is of no
// authority that is still trusted.
func (p *peers) closeUntrusted() {
	p.mu.Lock()
	outbound, inbound := slices.Collect(maps.Keys(p.outbound)), slices.Collect(maps.Keys(p.inbound))
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range outbound {
		wg.Go(l.closeUntrusted)
	}
	for _, g := range inbound {
		wg.Go(g.closeUntrusted)
	}
	wg.Wait()
}

// replaceAll replaces each outbound session by one with the present certificates.
func (p *peers) replaceAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.outbound {
		l.replaceSoon()
	}
}

// sendToAll sends a message to all replicas, by the sessions of both directions.
func (p *peers) sendToAll(m *wire.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.outbound {
		l.Send(m) // does not block
	}
	for g := range p.inbound {
		g.Send(m)
	}
}
