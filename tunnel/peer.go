package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// selfAgain is how long after it led to this replica itself an address is tried
// again: it may be a load balancer's, and lead to any replica.
const selfAgain = 5 * time.Minute

// lateRotation is how long a session is kept with a replica that is behind in the
// rollover of the authorities.
const lateRotation = 5 * time.Minute

// errSelf is the error of a replica that dialed itself.
var errSelf = errors.New("the address is this server's own")

// peer is one of the addresses that Peers gives, and the session with the replica
// there.
type peer struct {
	peers       *peers
	dialAddress string             // as Peers gives it
	address     string             // the same without a password
	cancel      context.CancelFunc // ends run
	trying      sync.Once
	tried       chan struct{} // closed when the first attempt to connect has ended
	came        chan struct{} // holds one: the replica there has dialed this one

	mu       sync.Mutex // guards the fields below
	name     string     // of the replica that was found there last
	zone     string     // as Peers says; empty: unknown
	self     bool
	draining bool
	link     *outboundPeer // the newest; may have ended
	err      error         // why link is nil
}

// run keeps a session with the replica until ctx ends. Then the session takes no
// new streams, and ends with its last one.
func (p *peer) run(ctx context.Context) {
	defer p.endFirstAttempt()
	b := &backoff.Backoff{First: time.Second, Max: 10 * time.Second}
	for ctx.Err() == nil {
		select {
		case <-p.came: // this attempt serves it, too
		default:
		}
		var link *outboundPeer
		var err error
		onOwnStack(func() { link, err = p.openSession(ctx) })
		if errors.Is(err, errSelf) {
			p.update(func() { p.self, p.name, p.err = true, p.peers.server.name, nil })
			p.endFirstAttempt()
			backoff.Sleep(ctx, selfAgain)
			continue
		}
		if err != nil {
			p.update(func() { p.err = err })
			if ctx.Err() == nil {
				callHook2(p.peers.server.Hooks.PeerFailed, p.address, err)
			}
			p.endFirstAttempt()
			p.waitRetry(ctx, b.Next(0))
			continue
		}
		if old := p.replaceLink(link); old != nil {
			old.Retire()
		}
		p.endFirstAttempt()
		if link.awaitReplacing(ctx) {
			continue // this session takes dials until the next one is there
		}
		link.Retire()
		p.update(func() { p.err = link.sessionError(link.UnexpectedCause()) })
		p.waitRetry(ctx, b.Next(time.Since(link.Since)))
	}
	if old := p.replaceLink(nil); old != nil {
		old.Retire()
	}
}

// waitRetry waits before another attempt, unless the replica shows that it is there.
func (p *peer) waitRetry(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.came:
	case <-ctx.Done():
	}
}

// retryNow ends waitRetry if the peer is not connected and may be the replica of
// this name, which has just dialed this one: it may have been started again.
func (p *peer) retryNow(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.self || p.link != nil && p.link.TakesStreams() || p.name != "" && p.name != name {
		return
	}
	select {
	case p.came <- struct{}{}:
	default:
	}
}

// endFirstAttempt has awaitFirst return.
func (p *peer) endFirstAttempt() { p.trying.Do(func() { close(p.tried) }) }

// awaitFirst waits for the end of the first attempt to connect. It returns nil if
// there is no session; the error is that of ctx.
func (p *peer) awaitFirst(ctx context.Context) (*outboundPeer, error) {
	select {
	case <-p.tried:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil || !p.link.TakesStreams() {
		return nil, nil
	}
	return p.link, nil
}

// update has change set fields that the lock guards.
func (p *peer) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// replaceLink sets the session, and returns the former one.
func (p *peer) replaceLink(l *outboundPeer) *outboundPeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.link
	p.link = l
	if l != nil {
		p.self, p.draining, p.err, p.name = false, false, nil, l.name
	}
	return old
}

// openSession opens a session with the replica at the address.
func (p *peer) openSession(ctx context.Context) (*outboundPeer, error) {
	s := p.peers.server
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.HandshakeTimeout, 15*time.Second))
	defer cancel()
	config, expires, err := s.registrar.peerTLS()
	if err != nil {
		return nil, err
	}
	c, err := dialCarrier(ctx, s.PeerDial, p.dialAddress, nil, config)
	if err != nil {
		return nil, connectError(ctx, p.address, err)
	}
	m := mux.Client(c, muxConfig(1, s.KeepAlive, s.Budget, nil)) // it opens none
	control, welcome, err := p.sayHello(ctx, m)
	if err != nil {
		m.Close()
		return nil, connectError(ctx, p.address, err)
	}
	l := newOutboundPeer(p, c, m, control, welcome.Text(wire.TagServer))
	l.rotateAt = time.Now().Add(expires.Sub(s.registrar.clock()) / 2)
	// A certificate that another authority than the one that signs now has signed may soon be
	// of no use.
	if l.cert.CheckSignatureFrom(s.registrar.authority().Certificate) != nil {
		l.rotateAt = time.Now().Add(lateRotation)
	}
	p.peers.addOutbound(l) // before the one that it replaces is retired
	l.start()
	return l, nil
}

// sayHello says HELLO and reads the answer.
func (p *peer) sayHello(ctx context.Context, m *mux.Session) (*mux.Stream, *wire.Message, error) {
	s := p.peers.server
	hello := wire.New(wire.MsgHello).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, p.peers.id).
		AddString(wire.TagServer, s.name).AddTime(wire.TagTime, time.Now())
	return session.SayHello(ctx, m, hello, wire.MaxHello, func(control *mux.Stream, answer *wire.Message) error {
		if err := p.checkAnswer(answer); err != nil {
			return err
		}
		return s.sendRevoked(control)
	})
}

// checkAnswer returns an error unless the answer to HELLO opens a session.
func (p *peer) checkAnswer(answer *wire.Message) error {
	if err := checkWelcome(answer, "", p.address); err != nil {
		return err
	}
	s := p.peers.server
	name := answer.Text(wire.TagServer)
	switch {
	case answer.Text(wire.TagID) == p.peers.id:
		return errSelf
	case name == s.name:
		return configError("field Name of the Server: the replica at %s has the name %q too", p.address, name)
	}
	if err := wire.CheckReplica(name); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	return nil
}
