package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// agentSession is the server's end of an agent's session: it opens streams, and
// the agent dials targets for them.
type agentSession struct {
	sessionCore
	server  *Server
	id      Identity
	number  string // unique in the server's life
	remote  net.Addr
	seq     uint64        // a later session has a higher one
	carrier *carrier.Conn // of mux
	// byIdentify: Server.Identify vouches for the agent, and no authority.
	byIdentify bool
	// welcomed is by whose certificates the agent was let in, and which it was
	// told to trust.
	welcomed *Authority
	servers  []string // the names that it was told in its WELCOME

	renewalAsked time.Time // handleControl's: when the agent last asked for a certificate

	dials  atomic.Uint64
	failed atomic.Uint64

	state    sync.Mutex            // guards the fields below
	waiting  map[string]chan error // payloads by id
	expiry   time.Time             // of the agent's latest certificate
	expiring *time.Timer
	proven   *x509.Certificate // the latest whose key was proven on this carrier
}

// serveCarrier takes a carrier from its first byte to its end, but for an
// agent's session: that stays in the group.
func (s *Server) serveCarrier(g *group.Group, conn net.Conn) {
	if serve := s.admit(g, conn); serve != nil {
		serve() // its session has the carrier
		return
	}
	conn.Close()
}

// apart runs f and returns when f has. What stack f needs goes with it: a
// handshake's would stay with the goroutine that then waits for hours.
func apart(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Wait()
}

// admit returns what serves the session of a new carrier, or nil: it was an
// enrolment, or was refused.
func (s *Server) admit(g *group.Group, conn net.Conn) (serve func()) {
	ctx, cancel := context.WithTimeout(g.Context(), orDefault(s.HandshakeTimeout, 15*time.Second))
	defer cancel()
	p, err := s.admission.Enter(ctx, conn)
	if err != nil {
		s.Hooks.refused(conn.RemoteAddr(), badPeer(ctx, "connect", "", err))
		return nil
	}
	defer p.Leave()
	ctx = p.Context()
	c, err := carrier.Accept(p, conn, s.tls)
	if err != nil {
		s.Hooks.refused(conn.RemoteAddr(), badPeer(ctx, "connect", "", err))
		return nil
	}
	switch c.State().NegotiatedProtocol {
	case protoEnroll:
		s.serveEnrolment(ctx, c)
	case protoTunnel:
		sess, err := s.greet(ctx, g, c)
		if err == nil {
			return func() { s.serveSession(sess) }
		}
		s.Hooks.refused(conn.RemoteAddr(), err)
	case protoPeer:
		peer, err := s.greetPeer(ctx, g, c)
		if err == nil {
			return peer.start
		}
		s.Hooks.refused(conn.RemoteAddr(), err)
	default:
		s.Hooks.refused(conn.RemoteAddr(), &Error{Op: "connect", Code: CodeVersion, Err: errors.New("the client offered no protocol of the tunnel by ALPN")})
	}
	c.Close()
	return nil
}

// badPeer is the error of a carrier that made nothing of itself.
func badPeer(ctx context.Context, op, cluster string, err error) *Error {
	switch cause := context.Cause(ctx); {
	case errors.Is(err, admission.ErrCrowded):
		return &Error{Op: op, Cluster: cluster, Code: CodeTooManyStreams, Err: err}
	case errors.Is(cause, admission.ErrCrowded):
		return &Error{Op: op, Cluster: cluster, Code: CodeTooManyStreams, Err: cause}
	case errors.Is(cause, context.DeadlineExceeded):
		return &Error{Op: op, Cluster: cluster, Code: CodeTimeout, Err: errors.New("the handshake was not complete within HandshakeTimeout")}
	case cause != nil:
		return &Error{Op: op, Cluster: cluster, Code: CodeClosed, Err: cause}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Op: op, Cluster: cluster, Code: CodeTimeout, Err: err}
	}
	return &Error{Op: op, Cluster: cluster, Code: CodeBadRequest, Err: err}
}

// greet reads HELLO and answers it.
func (s *Server) greet(ctx context.Context, g *group.Group, c *carrier.Conn) (*agentSession, error) {
	a := s.authority.Load() // before it is asked: serveSession looks for a later one
	asking, cancel := answering(ctx)
	defer cancel()
	id, cert, byIdentify, err := s.enroller.identify(asking, c.State())
	if err != nil {
		refuseStranger(ctx, c, err)
		return nil, err
	}
	c.Admit()
	m := mux.Server(c, s.KeepAlive.mux(1)) // agents open the control stream only
	control, hello, err := acceptHello(ctx, m, id.Cluster, func(hello *wire.Message) *Error {
		if s.holds(hello) {
			return &Error{Op: "connect", Cluster: id.Cluster, Code: CodeHeld}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	seq := s.seq.Add(1)
	sess := &agentSession{
		sessionCore: sessionCore{
			mux: m, out: outbox{control: control}, group: g, since: time.Now(),
			limit: s.limit(hello), opening: make(chan struct{}, 1),
		},
		server: s, id: id, byIdentify: byIdentify, number: strconv.FormatUint(seq, 10), seq: seq,
		remote: c.RemoteAddr(), carrier: c, expiry: cert.NotAfter, proven: cert, welcomed: a, servers: s.servers(),
	}
	sess.role = sess
	welcome := wire.New(wire.MsgWelcome).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, sess.number).AddTime(wire.TagTime, time.Now())
	if byIdentify { // its certificate does not say who it is here
		welcome.AddString(wire.TagCluster, id.Cluster).AddString(wire.TagName, id.Agent)
	}
	sess.send(a.addRoots(welcome).AddStrings(wire.TagServer, sess.servers))
	return sess, nil
}

// limit is how many streams the session may have, by either side.
func (s *Server) limit(hello *wire.Message) int {
	limit := orDefault(s.MaxStreams, 1000)
	if its := hello.Uint(wire.TagLimit); its > 0 && its < uint64(limit) {
		return int(its)
	}
	return limit
}

// serveSession begins a session, which its group then waits for.
func (s *Server) serveSession(sess *agentSession) {
	if !s.register(sess) {
		sess.mux.Close()
		s.Hooks.refused(sess.remote, &Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeRevoked})
		return
	}
	sess.expireLater()
	sess.begin()
	s.Hooks.connected(sess.info())
	sess.runAttached(func() { s.sendPayloads(sess) })
	if a := s.authority.Load(); a != sess.welcomed {
		sess.closeUntrusted(a)
	}
	sess.serve(nil)
}

func (sess *agentSession) shutdownCause() error { return sess.server.whyClosed(sess.id.Cluster) }

// handleRetired has dials take other sessions.
func (sess *agentSession) handleRetired() { sess.server.registry.drop(sess) }

func (sess *agentSession) handleClosed() { sess.stopExpiry() }

func (sess *agentSession) handleEnd(cause error) {
	sess.server.registry.remove(sess, cause)
	sess.server.Hooks.disconnected(sess.info(), cause)
}

func (sess *agentSession) handleControl(m *wire.Message) {
	switch m.Kind {
	case wire.MsgRenew:
		sess.server.renew(sess, m)
	case wire.MsgReceived:
		sess.received(m)
	case wire.MsgDrain:
		sess.retire()
	}
}

// register lets dials come to the session, and catches up with what happened
// while it was not registered. It reports whether the agent may stay.
func (s *Server) register(sess *agentSession) bool {
	until := sess.expiry // before others can extend it
	replaced, ok := s.registry.add(sess)
	if !ok {
		return false
	}
	for _, old := range replaced {
		s.retire(old)
	}
	// The certificate may have been renewed at another replica, or without us.
	s.extend(sess, until)
	for _, old := range s.registry.excess(sess.id) {
		old.closeWithCause(errors.New("the agent has too many sessions"))
	}
	if sess.group.Accepting().Err() != nil {
		s.retire(sess)
	}
	s.announcing.Lock()
	defer s.announcing.Unlock()
	if a := s.authority.Load(); a != sess.welcomed {
		sess.send(a.addRoots(wire.New(wire.MsgRoots)))
	}
	if !slices.Equal(s.announced, sess.servers) {
		sess.send(wire.New(wire.MsgServers).AddStrings(wire.TagServer, s.announced))
	}
	return true
}

// renewEvery is how often a session may ask for a certificate: signing costs.
const renewEvery = time.Second

func (s *Server) renew(sess *agentSession, m *wire.Message) {
	if !sess.renewalAsked.IsZero() && time.Since(sess.renewalAsked) < renewEvery {
		sess.send(refusal(wire.MsgIssued, CodeInternal, "too soon after the last one").AddBytes(wire.TagID, m.Bytes(wire.TagID)))
		return
	}
	sess.renewalAsked = time.Now()
	ctx, cancel := context.WithTimeout(sess.group.Context(), lingerTimeout)
	defer cancel()
	answer := s.enroller.renew(ctx, sess.id, sess.carrier.State(), m)
	if err := messageError(answer, "renew", sess.id.Cluster, ""); err != nil {
		s.Hooks.refused(sess.remote, err)
		if codeOf(err) == CodeRevoked { // by another server of the Store
			s.expel(sess.id)
			return
		}
	} else if cert, err := x509.ParseCertificate(answer.Bytes(wire.TagCertificate)); err == nil {
		s.extend(sess, cert.NotAfter)
		sess.state.Lock()
		sess.proven = cert // the request has proven its key
		sess.state.Unlock()
		s.Hooks.renewed(sess.id, cert.NotAfter)
	}
	sess.send(answer)
}

// extend has all sessions of the agent live until its latest certificate ends,
// which is of sess: streams on the older ones may outlive the certificate that
// those began with. The authority does not speak for Identify, nor the other way
// round.
func (s *Server) extend(sess *agentSession, until time.Time) {
	for _, its := range s.registry.ofAgent(sess.id) {
		if its.byIdentify == sess.byIdentify {
			its.extend(until)
		}
	}
}

func (sess *agentSession) extend(until time.Time) {
	sess.state.Lock()
	defer sess.state.Unlock()
	if until.After(sess.expiry) {
		sess.expiry = until
	}
}

// until is when the agent's latest certificate ends.
func (sess *agentSession) until() time.Time {
	sess.state.Lock()
	defer sess.state.Unlock()
	return sess.expiry
}

// expireLater ends the session when the agent's latest certificate is past
// its life, unless stopExpiry is called before.
func (sess *agentSession) expireLater() {
	sess.state.Lock()
	defer sess.state.Unlock()
	sess.expiring = time.AfterFunc(sess.expiry.Sub(sess.server.enroller.clock()), sess.expire)
}

func (sess *agentSession) stopExpiry() {
	sess.state.Lock()
	defer sess.state.Unlock()
	sess.expiring.Stop()
	sess.expiring = nil
}

func (sess *agentSession) expire() {
	if sess.expired() {
		sess.closeWithCause(&Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeCertificateExpired})
	}
}

// expired sets the timer again if the certificate was renewed.
func (sess *agentSession) expired() bool {
	sess.state.Lock()
	defer sess.state.Unlock()
	if sess.expiring == nil {
		return false
	}
	left := sess.expiry.Sub(sess.server.enroller.clock())
	if left > 0 {
		sess.expiring.Reset(left)
	}
	return left <= 0
}

// closeUntrusted closes the session if its certificate is of no authority in a.
func (sess *agentSession) closeUntrusted(a *Authority) {
	if sess.byIdentify {
		return
	}
	sess.state.Lock()
	cert := sess.proven
	sess.state.Unlock()
	if err := verifyLeaf(cert, a.all(), x509.ExtKeyUsageClientAuth, inLife(cert, sess.server.enroller.clock())); err != nil {
		sess.closeWithCause(&Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeBadCertificate, Err: err})
	}
}

// send queues a message for the control stream. It does not block; an agent
// that reads none is dropped.
func (sess *agentSession) send(m *wire.Message) {
	if !sess.out.add(m) {
		sess.group.Go(func() { sess.closeWithCause(errors.New("the agent does not read its control stream")) })
	}
}
