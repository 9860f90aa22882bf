package tunnel

import (
	"context"
	"errors"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// foundFor is how long a replica is taken to have the agent that it had.
const foundFor = 10 * time.Second

// finding is the replica that has an agent of a cluster.
type finding struct {
	link  *outboundPeer
	until time.Time
}

// remembered returns the replica that had an agent of the cluster a moment
// ago; nil if there is none. That a cluster has no agent is not remembered: it
// may have one now.
func (p *peers) remembered(cluster string) *outboundPeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.found[cluster]
	if !ok || !f.link.TakesStreams() || time.Now().After(f.until) {
		delete(p.found, cluster)
		return nil
	}
	return f.link
}

func (p *peers) remember(cluster string, l *outboundPeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		p.found = map[string]finding{}
	}
	if p.found[cluster].link != l && p.outbound[l] {
		p.found[cluster] = finding{l, time.Now().Add(foundFor)}
	}
}

func (p *peers) forget(cluster string, l *outboundPeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found[cluster].link == l {
		delete(p.found, cluster)
	}
}

// forward has a peer dial: the one that had an agent just now, or one that
// says that it has one within patience. last is what this replica's own agents
// came to.
func (d *Dialer) forward(ctx context.Context, network, address string, last *Error, patience time.Duration) (stream *mux.Stream, err *Error) {
	began := time.Now()
	defer func() {
		if err != nil {
			d.server.Hooks.forwarded(d.cluster, time.Since(began), err)
			return
		}
		d.server.Hooks.forwarded(d.cluster, time.Since(began), nil)
	}()
	p := &d.server.peers
	if l := p.remembered(d.cluster); l != nil {
		if stream, err = d.attemptPeer(ctx, l, network, address); err == nil || !worthAsking(err) {
			return stream, err
		}
	}
	stream, err = d.find(ctx, network, address, last, patience)
	if err != nil && errors.Is(err, errMoved) {
		// It said yes, and it or its agent left: by now that may be elsewhere.
		stream, err = d.find(ctx, network, address, last, patience)
	}
	return stream, err
}

// errMoved is of a replica that had an agent when it was asked, and none when
// it was to dial.
var errMoved = errors.New("the agent of another replica has just left")

// errPeerLost is errMoved of a replica that was lost itself.
type errPeerLost struct{ error }

func (e errPeerLost) Is(err error) bool { return err == errMoved }
func (e errPeerLost) Unwrap() error     { return e.error }

// find asks the peers, and has those dial that have an agent, one after the
// other for as long as another may do better.
func (d *Dialer) find(ctx context.Context, network, address string, last *Error, patience time.Duration) (*mux.Stream, *Error) {
	p := &d.server.peers
	q := p.search(ctx, d.cluster, patience)
	defer q.end()
	for {
		l := q.next()
		if l == nil {
			break
		}
		stream, err := d.attemptPeer(ctx, l, network, address)
		if err == nil {
			p.remember(d.cluster, l)
			return stream, nil
		}
		if last = err; !worthAsking(err) {
			return nil, err
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, d.fail(address, contextCode(ctx.Err()), ctx.Err())
	case last.Code == CodeNoAgent && (last.Err == nil || q.silent > 0):
		return nil, d.fail(address, CodeNoAgent, p.unasked(q.silent))
	}
	return nil, last
}

// attemptPeer has one peer dial.
func (d *Dialer) attemptPeer(ctx context.Context, l *outboundPeer, network, address string) (*mux.Stream, *Error) {
	l.countStream()
	m := dialRequest(ctx, wire.MsgForward, network, address).AddString(wire.TagCluster, d.cluster)
	stream, err := d.dialThrough(ctx, &l.Session, m, address, func(context.Context) bool { return true })
	if err != nil {
		return nil, d.peerFailed(l, address, err)
	}
	return stream, nil
}

// peerFailed forgets a replica that is of no use for the cluster.
func (d *Dialer) peerFailed(l *outboundPeer, address string, err *Error) *Error {
	switch err.Code {
	case codeNotHere, CodeDraining:
		err = d.fail(address, CodeNoAgent, errMoved)
	case CodeLost:
		err = d.fail(address, CodeLost, errPeerLost{err.Err})
	}
	if worthAsking(err) {
		d.server.peers.forget(d.cluster, l)
	}
	return err
}
