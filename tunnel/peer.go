package tunnel

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
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
	pace        turns.Pace    // of its control messages

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
		p.replaceLink(link)
		p.endFirstAttempt()
		if link.awaitReplacing(ctx) {
			continue // this session takes dials until the next one is there
		}
		link.Retire()
		err = link.sessionError(link.UnexpectedCause())
		p.update(func() { p.err = err })
		p.waitRetry(ctx, b.Next(time.Since(link.Since)))
	}
	p.replaceLink(nil)
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

// replaceLink sets the session, and retires the former one.
func (p *peer) replaceLink(l *outboundPeer) {
	p.mu.Lock()
	old := p.link
	p.link = l
	if l != nil {
		p.self, p.draining, p.err, p.name = false, false, nil, l.name
	}
	p.mu.Unlock()
	if old != nil {
		old.Retire()
	}
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
	l.Begin()
	callHook1(s.Hooks.PeerConnected, l.name)
	l.closeUntrusted() // the authority may have been replaced since the handshake
	l.Serve(nil)
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

// outboundPeer is this end of a session that this replica has opened to another one.
// It opens streams, and the other replica dials for them by its agents.
type outboundPeer struct {
	session.Session
	peer     *peer
	name     string            // the replica's
	cert     *x509.Certificate // the replica's
	rotateAt time.Time         // when another session replaces it, before the certificates expire
	opened   atomic.Uint64
	load     atomic.Int64 // how many agents' sessions the replica has; -1: it has not said so

	replacing   sync.Once
	replaceNow  chan struct{} // closed by replaceSoon
	retiredDone chan struct{} // closed when it takes no more streams
}

func newOutboundPeer(p *peer, c *carrier.Conn, m *mux.Session, control *mux.Stream, name string) *outboundPeer {
	l := &outboundPeer{
		peer: p, name: name, cert: c.State().PeerCertificates[0],
		replaceNow: make(chan struct{}), retiredDone: make(chan struct{}),
	}
	l.load.Store(-1)
	l.Init(session.Config{Role: l, Mux: m, Control: control, Group: p.peers.group, Dialed: true, Pace: &p.pace})
	return l
}

// replaceSoon makes the peer open another session: stream ids run out, or another
// authority signs. This one takes dials until then.
func (l *outboundPeer) replaceSoon() { l.replacing.Do(func() { close(l.replaceNow) }) }

// closeUntrusted closes the session if the replica's certificate is of no authority
// that is still trusted.
func (l *outboundPeer) closeUntrusted() {
	if err := l.peer.peers.server.registrar.trustsPeerNow(l.cert); err != nil {
		l.CloseWithCause(&Error{Op: "connect", Addr: l.peer.address, Code: CodeServerCertificate, Err: err})
	}
}

// awaitReplacing returns when another session is needed. It reports whether this one
// takes streams until then.
func (l *outboundPeer) awaitReplacing(ctx context.Context) bool {
	select {
	case <-time.After(time.Until(l.rotateAt)):
		return true
	case <-l.replaceNow:
		return true
	case <-l.retiredDone:
	case <-l.Mux.Done():
	case <-ctx.Done():
	}
	return false
}

func (l *outboundPeer) HandleControl(m *wire.Message) {
	switch m.Kind {
	case wire.MsgDrain:
		l.peer.update(func() { l.peer.draining = true })
		l.Retire()
	case wire.MsgRevoked:
		l.peer.peers.server.handleRevoked(m)
	case wire.MsgArrived:
		l.peer.peers.holders.forget(m.Text(wire.TagCluster), nil)
	case wire.MsgLoad:
		l.load.Store(int64(min(m.Uint(wire.TagLimit), 1<<32)))
	}
}

// HandleRetired tells the agents that the replica takes no more sessions.
func (l *outboundPeer) HandleRetired() {
	close(l.retiredDone)
	l.peer.peers.server.announceSoon()
}

func (l *outboundPeer) HandleClosed() {}

func (l *outboundPeer) HandleEnd(cause error) {
	l.peer.peers.removeOutbound(l)
	callHook2(l.peer.peers.server.Hooks.PeerDisconnected, l.name, l.sessionError(cause))
}

func (l *outboundPeer) ShutdownCause() error { return l.peer.peers.server.whyClosed("") }

// sessionError returns the error for Hooks.
func (l *outboundPeer) sessionError(cause error) error {
	if cause == nil || codeOf(cause) == CodeServerCertificate {
		return cause
	}
	return lostError(l.peer.address, "peer", cause)
}

// countStream must be called before each stream is opened.
func (l *outboundPeer) countStream() {
	if l.opened.Add(1) == wire.MaxOpened {
		l.replaceSoon()
	}
}

const (
	// maxPeerStreams is how many streams a peer may have open at once.
	maxPeerStreams = 1 << 16
	// maxRequests is how many requests of a session are read and answered at once, dials
	// and pushes aside. Of the requests and control messages from one address requestBurst are taken at
	// once, and then requestRate a second: a replica that floods would have all of the CPU. FLEET, whose
	// answer is large, counts for fleetCost. Of dials maxForwards are made at once, for forwardTime each at
	// most, as of a gateway's client.
	maxRequests  = 128
	requestBurst = 10_000
	requestRate  = 2000
	fleetCost    = 200
	maxForwards  = 10
	forwardTime  = 10 * time.Millisecond
	// maxInbound is how many sessions replicas may have here. One more takes the place of
	// one of an address that has more than its own.
	maxInbound = 128
	// pendingDial is what a dial costs here until it is answered, beside its early bytes.
	pendingDial = 16 << 10
	// maxPushes is how many pushes for all replicas are under way at once: payloads are large.
	maxPushes = 64
)

// inboundPeer is this end of a session that another replica has opened. The other
// replica opens streams, and this one dials for them by its agents.
type inboundPeer struct {
	session.Session
	server   *Server
	name     string // the replica's
	host     string // where it comes from
	cert     *x509.Certificate
	toldLoad int // by tellLoad; -1: nothing
	place    *admission.Place
	requests chan struct{} // filled while they are read and answered
	from     *peerHost
	telling  sync.Mutex // its Status
}

// peerHost is what the inbound sessions from one address share.
type peerHost struct {
	pace  turns.Pace    // of requests and control messages
	dials *turns.Starts // that are forwarded
}

// acceptPeer reads a peer's HELLO and answers it. If the peer is this replica itself,
// it sees that in the answer, and closes the session.
func (s *Server) acceptPeer(ctx context.Context, g *group.Group, c *carrier.Conn) (*inboundPeer, error) {
	if err := s.registrar.verifyPeer(c.State()); err != nil {
		refused := &Error{Op: "connect", Code: CodeBadCertificate, Err: err}
		session.RefuseStranger(ctx, c, refusalOf(wire.MsgRefusal, refused))
		return nil, refused
	}
	c.Admit()
	host := hostOf(c.RemoteAddr().String())
	m := mux.Server(c, muxConfig(maxPeerStreams, s.KeepAlive, s.Budget, host))
	control, hello, err := acceptHello(ctx, m, "", func(hello *wire.Message) *Error {
		if err := wire.CheckReplica(hello.Text(wire.TagServer)); err != nil {
			return &Error{Op: "connect", Code: CodeBadRequest, Err: err}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	place, err := s.peers.places.Enter(ctx, c)
	if err != nil {
		m.Close()
		return nil, handshakeError(ctx, "connect", "", err)
	}
	place.Reach(admission.Proven)
	welcome := wire.New(wire.MsgWelcome).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, s.peers.id).
		AddString(wire.TagServer, s.name).AddTime(wire.TagTime, time.Now())
	p := &inboundPeer{
		server: s, name: hello.Text(wire.TagServer), host: host, cert: c.State().PeerCertificates[0], toldLoad: -1, place: place, requests: make(chan struct{}, maxRequests),
	}
	p.Init(session.Config{Role: p, Mux: m, Control: control, Group: g, Streams: group.New(g.Context())})
	p.Send(welcome)
	return p, nil
}

// start begins to serve streams and control messages.
func (p *inboundPeer) start() {
	p.server.peers.addInbound(p)
	if p.Group.Accepting().Err() != nil {
		p.Send(wire.New(wire.MsgDrain))
	}
	p.Begin()
	p.closeUntrusted() // the authority may have been replaced since the handshake
	p.Serve(nil)
	p.Mux.Serve(p.takeStream)
}

// takeStream is called by the carrier's reader: while maxRequests are under way, or its host has to wait,
// nothing more is read from the peer.
func (p *inboundPeer) takeStream(stream *mux.Stream) {
	p.Rest(1)
	p.requests <- struct{}{} // they end with the session
	if !p.Streams.Go(func() { p.serveStream(stream) }) {
		stream.Reset(uint32(CodeDraining))
		<-p.requests
	}
}

func (p *inboundPeer) HandleControl(m *wire.Message) {
	if m.Kind == wire.MsgRevoked {
		p.server.handleRevoked(m)
	}
}

func (p *inboundPeer) HandleRetired()       {}
func (p *inboundPeer) HandleClosed()        { p.place.Leave() }
func (p *inboundPeer) HandleEnd(error)      { p.server.peers.removeInbound(p) }
func (p *inboundPeer) ShutdownCause() error { return p.server.whyClosed("") }

// closeUntrusted closes the session if the replica's certificate is of no authority
// that is still trusted.
func (p *inboundPeer) closeUntrusted() {
	if err := p.server.registrar.trustsPeerNow(p.cert); err != nil {
		p.CloseWithCause(&Error{Op: "connect", Code: CodeBadCertificate, Err: err})
	}
}

// serveStream serves one request of the peer. It is under way until the carrier takes the answer: a peer
// may take none.
func (p *inboundPeer) serveStream(stream *mux.Stream) {
	defer stream.Close()
	var far *mux.Stream
	onOwnStack(func() {
		rest := p.answerRequest(stream)
		if rest == nil {
			stream.CloseSent()
		}
		<-p.requests
		if rest == nil {
			return
		}
		if far = rest(); far == nil { // a refusal
			p.requests <- struct{}{}
			stream.CloseSent()
			<-p.requests
		}
		stream.Keep(0)
	})
	if far != nil {
		session.Bridge(p.Streams.Context(), stream, far)
	}
}

// answerRequest reads the stream's request, and answers it. It returns what is left to do if that
// may take long: a push, or a dial, after which rest returns the agent's stream.
func (p *inboundPeer) answerRequest(stream *mux.Stream) (rest func() *mux.Stream) {
	stream.SetReadDeadline(time.Now().Add(cmp.Or(p.server.HandshakeTimeout, 15*time.Second)))
	var early []byte
	m, err := wire.Read(stream, wire.MaxRequest)
	if err == nil {
		early, err = readEarly(stream, m)
	}
	if err != nil {
		stream.Reset(uint32(CodeBadRequest))
		return nil
	}
	stream.SetReadDeadline(time.Time{})
	switch m.Kind {
	case wire.MsgAsk:
		wire.Write(stream, wire.New(wire.MsgHave).AddUint(wire.TagCode, uint64(p.server.hasAgent(m.Text(wire.TagCluster)))))
	case wire.MsgForward:
		return func() *mux.Stream { return p.dialFor(stream, m, early) }
	case wire.MsgFleet:
		p.Rest(fleetCost)
		p.telling.Lock() // one at a time: it may be large
		defer p.telling.Unlock()
		p.server.sendStatus(stream)
	case wire.MsgPush:
		return func() *mux.Stream { p.pushFor(stream, m.Text(wire.TagCluster)); return nil }
	default:
		stream.Reset(uint32(CodeBadRequest))
	}
	return nil
}

// readEarly reads the data that m says follows it.
func readEarly(stream *mux.Stream, m *wire.Message) ([]byte, error) {
	n := m.Uint(wire.TagEarly)
	if n > wire.MaxEarly {
		return nil, wire.ErrMalformed
	}
	stream.Keep(pendingDial + int(n))
	early := make([]byte, n)
	_, err := io.ReadFull(stream, early)
	return early, err
}

// hasAgent returns the code of the answer to ASK: zero if an agent is here that
// answers.
func (s *Server) hasAgent(cluster string) Code {
	sess := s.registry.nextSession(cluster, nil)
	switch {
	case sess != nil && sess.IsSuspect():
		return CodeTimeout
	case sess != nil:
		return 0
	case s.peers.isDraining():
		return CodeDraining
	}
	return codeNotHere
}

// dialFor dials for the peer, which has checked that the dial is allowed, and answers.
func (p *inboundPeer) dialFor(stream *mux.Stream, m *wire.Message, early []byte) *mux.Stream {
	ctx, cancel := dialContext(p.Streams.Context(), stream, m)
	defer cancel()
	run := (&Dialer{server: p.server, cluster: m.Text(wire.TagCluster)}).newDial(m.Text(wire.TagNetwork), m.Text(wire.TagAddress), m.Uint(wire.TagShare), early)
	run.forwardedBy(p.host)
	done, late := p.from.dials.Enter(ctx)
	far, err := run.dialForwarded(ctx)
	if late == nil {
		done()
	}
	if err != nil {
		wire.Write(stream, refusalOf(wire.MsgDialed, forwardedError(err)))
		return nil
	}
	answer := wire.New(wire.MsgDialed)
	if a, ok := far.RemoteAddr().(Addr); ok {
		answer.AddString(wire.TagName, a.Agent).AddString(wire.TagID, a.Replica)
	}
	stream.SetShare(run.caller.Share, run.caller.Holder)
	if wire.Write(stream, answer) != nil {
		far.Reset(0)
		return nil
	}
	return far
}

// forwardedError replaces the codes that are never sent by those that tell the peer
// whether another replica may do better.
func forwardedError(err *Error) *Error {
	switch err.Code {
	case CodeNoAgent, CodeLost:
		return &Error{Op: err.Op, Cluster: err.Cluster, Addr: err.Addr, Code: codeNotHere}
	case CodeCanceled, CodeClosed:
		return &Error{Op: err.Op, Cluster: err.Cluster, Addr: err.Addr, Code: CodeDraining}
	}
	return err
}
