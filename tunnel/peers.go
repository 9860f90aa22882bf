package tunnel

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/group"
)

// peers are the other replicas of a Server: those that it has dialed, and
// those that have dialed it. The zero value has none.
type peers struct {
	server *Server
	id     string       // of this process
	group  *group.Group // of the keepers and links; nil before start

	mu       sync.Mutex // guards the fields below
	started  bool
	closed   bool
	draining bool
	heard    bool // of the membership, or that it fails
	byAddr   map[string]*peer
	links    map[*peerLink]bool
	guests   map[*guest]bool
	found    map[string]finding // by cluster
	err      error              // of Peers, the last
}

// start looks for the other replicas, if that was not done before. From here
// on agents may come, so the Server does not drain.
func (p *peers) start() {
	p.mu.Lock()
	again := p.draining
	p.draining = false
	if !p.started && !p.closed && p.server.Peers != nil {
		p.started = true
		p.group = group.New(context.Background())
		p.group.Go(p.watch)
	}
	p.mu.Unlock()
	if again {
		p.server.tellServers()
	}
}

// close drains the links until ctx ends, and waits for the goroutines.
func (p *peers) close(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	g := p.group
	p.mu.Unlock()
	if g != nil {
		g.Drain(ctx)
	}
}

// watch has the Membership say where the replicas are.
func (p *peers) watch() {
	b := &backoff.Backoff{First: time.Second}
	for ctx := p.group.Accepting(); ctx.Err() == nil; {
		began := time.Now()
		err := p.server.Peers.Watch(ctx, p.set)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.err, p.heard = err, true
		p.mu.Unlock()
		sleep(ctx, b.Next(time.Since(began)))
	}
}

// set keeps up a session with each of the addresses, and with no other.
func (p *peers) set(addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.heard = nil, true
	for address, kept := range p.byAddr {
		if !slices.Contains(addresses, address) {
			kept.cancel()
			delete(p.byAddr, address)
		}
	}
	for _, address := range addresses {
		if p.byAddr[address] != nil {
			continue
		}
		kept := &peer{peers: p, address: address, met: make(chan struct{}), came: make(chan struct{}, 1)}
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

// live returns the links that take dials, one for each replica.
func (p *peers) live() []*peerLink {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*peerLink
	for l := range p.links {
		if l.takes() {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *peerLink) int {
		return cmp.Or(strings.Compare(a.name, b.name), b.since.Compare(a.since))
	})
	return slices.CompactFunc(all, func(a, b *peerLink) bool { return a.name == b.name })
}

// unmet returns the peers of which it is not known yet whether they can be
// connected.
func (p *peers) unmet() []*peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*peer
	for _, peer := range p.byAddr {
		select {
		case <-peer.met:
		default:
			all = append(all, peer)
		}
	}
	return all
}

// none reports whether there is nobody to ask.
func (p *peers) none() bool { return len(p.unmet()) == 0 && len(p.live()) == 0 }

// meetTimeout is how long a replica that has begun is not ready because it has
// not met the others.
const meetTimeout = 10 * time.Second

// meeting reports whether this replica has just begun, and it is not known yet
// which of the others can be connected.
func (p *peers) meeting() bool {
	if p.server.Peers == nil || time.Since(p.server.began) >= meetTimeout {
		return false
	}
	p.mu.Lock()
	heard := p.heard
	p.mu.Unlock()
	return !heard || len(p.unmet()) > 0
}

// names are those of the replicas that run, this one's first unless it drains.
// ok is false when nobody is to hear of them any more.
func (p *peers) names() (names []string, ok bool) {
	live := p.live()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.draining {
		names = append(names, p.server.name)
	}
	for _, l := range live {
		names = append(names, l.name)
	}
	return names, !p.closed
}

// drain is the end of this replica's agents: they are told which replicas are
// left.
func (p *peers) drain() {
	p.mu.Lock()
	was := p.draining
	p.draining = true
	p.mu.Unlock()
	if !was {
		p.server.tellServers()
	}
}

func (p *peers) isDraining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

func (p *peers) addLink(l *peerLink) {
	p.mu.Lock()
	if p.links == nil {
		p.links = map[*peerLink]bool{}
	}
	p.links[l] = true
	p.mu.Unlock()
	p.server.tellServers()
}

func (p *peers) removeLink(l *peerLink) {
	p.mu.Lock()
	delete(p.links, l)
	for cluster, f := range p.found {
		if f.link == l {
			delete(p.found, cluster)
		}
	}
	p.mu.Unlock()
	p.server.tellServers()
}

func (p *peers) addGuest(g *guest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guests == nil {
		p.guests = map[*guest]bool{}
	}
	p.guests[g] = true
	for _, peer := range p.byAddr {
		peer.wake(g.name)
	}
}

func (p *peers) removeGuest(g *guest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.guests, g)
}

// guestsOf returns those whose carriers came by the group.
func (p *peers) guestsOf(g *group.Group) []*guest {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*guest
	for guest := range p.guests {
		if guest.group == g {
			all = append(all, guest)
		}
	}
	return all
}

// tell says the message to all peers, whoever dialed.
func (p *peers) tell(m *message) {
	p.mu.Lock()
	var boxes []*outbox
	for l := range p.links {
		boxes = append(boxes, &l.out)
	}
	for g := range p.guests {
		boxes = append(boxes, &g.out)
	}
	p.mu.Unlock()
	for _, box := range boxes {
		box.add(m)
	}
}
