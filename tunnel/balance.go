package tunnel

import (
	"context"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// After a rolling restart the replica that came last has few agents. So replicas tell each
// other how many sessions they have, and one that has far more than its share asks some
// agents to look for another server.
const (
	balanceEvery = 10 * time.Second
	balancePart  = 100 // one session of so many moves at a time: each is a handshake
)

// balance runs until ctx ends.
func (p *peers) balance(ctx context.Context) {
	for sleep(ctx, balanceEvery); ctx.Err() == nil; sleep(ctx, balanceEvery) {
		own := p.server.registry.countServing()
		p.tellLoad(own)
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
// clearly more than at the other replicas on average.
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
	mean := sum / (len(others) + 1)
	if own <= mean+mean/8+8 {
		return 0
	}
	return min(own-mean, own/balancePart+1)
}

// moveSessions asks n agents to look for another server, by sessions without streams. An
// agent with no other session stays; it is asked again once all were.
func (s *Server) moveSessions(n int) {
	all := s.registry.allSessions()
	for _, sess := range all {
		if n == 0 {
			return
		}
		if !sess.asked && !sess.Retired() && sess.OpenStreams() == 0 {
			sess.asked = true
			sess.sendOrClose(wire.New(wire.MsgMove))
			n--
		}
	}
	for _, sess := range all {
		sess.asked = false
	}
}
