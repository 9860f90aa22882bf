package tunnel

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// agentSession is the server's end of an agent's session: it opens streams, and
// the agent dials targets for them.
type agentSession struct {
	session.Session
	server  *Server
	id      Identity
	replica string // among the agents with this identity; empty if it names none
	program string // the agent's, as it says
	number  string // unique in the server's life
	remote  net.Addr
	seq     uint64        // higher for a later session
	carrier *carrier.Conn // of mux
	after   time.Time     // the revocation of the cluster that its certificate was made after
	// welcomed is the authority that accepted the agent, and that its WELCOME says to
	// trust.
	welcomed *Authority
	servers  []string // the names in its WELCOME
	asked    bool     // by moveSessions
	// together: the agent's other session was in this zone when it came, for lack of
	// replicas elsewhere. moveApart clears it.
	together bool

	proven       atomic.Pointer[x509.Certificate] // the latest whose key was proven on this carrier
	renewalAsked time.Time                        // HandleControl's: when the agent last asked for a certificate

	counts dialCounts

	state    sync.Mutex            // guards the fields below
	waiting  map[string]chan error // payloads by id
	expiry   time.Time             // of the agent's latest certificate
	expiring *time.Timer
}

// dialCounts counts the dials of a session. The zero value is ready to use.
type dialCounts struct {
	mu        sync.Mutex // guards the fields below
	all       DialCounts
	connected uint64
	settled   bool          // the counts are final
	recent    [2]DialCounts // that have ended in this span of recentSpan, and in the one before
	since     time.Time     // when this span began
}

// recentSpan is half of the time of [SessionInfo.Recent].
const recentSpan = 5 * time.Minute

// begin counts a dial, and returns how many have begun.
func (c *dialCounts) begin() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled {
		c.all.Dials++
	}
	return c.all.Dials
}

// finish counts how a dial that has begun ended.
func (c *dialCounts) finish(err *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled { // settle has counted it
		return
	}
	c.turnLocked()
	c.recent[0].Dials++
	if err == nil {
		c.connected++
		return
	}
	for _, counts := range []*DialCounts{&c.all, &c.recent[0]} {
		counts.Failed++
		if err.Code == CodeDenied {
			counts.Denied++
		}
	}
}

// turnLocked begins a new span if that is due.
func (c *dialCounts) turnLocked() {
	now := time.Now()
	if ago := now.Sub(c.since); ago >= recentSpan {
		c.recent = [2]DialCounts{{}, c.recent[0]}
		if c.since = now; ago >= 2*recentSpan {
			c.recent[1] = DialCounts{}
		}
	}
}

// settle makes the counts final: the session has ended, so the dials that are under way
// fail. Whoever reports the session's last figures does not wait for them.
func (c *dialCounts) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Failed, c.settled = c.all.Dials-c.connected, true
}

func (c *dialCounts) load() (all, recent DialCounts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turnLocked()
	now, before := c.recent[0], c.recent[1]
	return c.all, DialCounts{now.Dials + before.Dials, now.Failed + before.Failed, now.Denied + before.Denied}
}

// acceptAgent reads HELLO and answers it.
func (s *Server) acceptAgent(ctx context.Context, g *group.Group, c *carrier.Conn) (*agentSession, error) {
	a := s.authority.Load() // before it is used: serveSession checks whether it was replaced
	asking, cancel := storeContext(ctx)
	defer cancel()
	id, cert, err := s.registrar.identify(asking, "connect", c.State())
	if err != nil {
		session.RefuseStranger(ctx, c, refusalOf(wire.MsgRefusal, err))
		return nil, err
	}
	c.Admit()
	m := mux.Server(c, muxConfig(1, s.KeepAlive, s.Budget, id.Cluster)) // agents open the control stream only
	control, hello, err := acceptHello(ctx, m, id.Cluster, func(hello *wire.Message) *Error {
		return s.checkHello(id, hello)
	})
	if err != nil {
		return nil, err
	}
	seq := s.seq.Add(1)
	sess := &agentSession{
		server: s, id: id, replica: hello.Text(wire.TagName), program: printable.Text(hello.Text(wire.TagProgram), printable.Most), after: madeAfter(cert), number: strconv.FormatUint(seq, 10), seq: seq,
		remote: c.RemoteAddr(), carrier: c, expiry: cert.NotAfter, welcomed: a, servers: s.announcedNames(),
		together: s.peers.holdsOwnZone(hello),
	}
	sess.proven.Store(cert)
	if hello.Uint(wire.TagLimit) == 0 { // it may be stock yamux
		m.LimitBacklog(stockBacklog)
	}
	sess.Init(session.Config{Role: sess, Mux: m, Control: control, Group: g, Limit: s.streamLimit(hello), Pace: &turns.Pace{Burst: agentBurst, Rate: agentRate}})
	welcome := wire.New(wire.MsgWelcome).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, sess.number).AddTime(wire.TagTime, time.Now())
	sess.sendOrClose(a.addRoots(welcome).AddStrings(wire.TagServer, sess.servers))
	return sess, nil
}

// Of an agent's control messages agentBurst are handled at once, and then agentRate a second.
const agentBurst, agentRate = 1000, 100

// stockBacklog is how many streams a stock yamux lets wait until they are accepted.
const stockBacklog = 256

// checkHello returns why the agent that says HELLO gets no session; nil if it does.
func (s *Server) checkHello(id Identity, hello *wire.Message) *Error {
	if err := wire.CheckAgentReplica(hello.Text(wire.TagName)); err != nil {
		return refusedError("connect", id.Cluster, CodeBadRequest, "HELLO: %w", err)
	}
	// TagHeld names the Servers that the agent has a session with.
	if slices.Contains(hello.Texts(wire.TagHeld), s.name) || s.peers.holdsOwnZone(hello) && s.peers.hasElsewhere() {
		return &Error{Op: "connect", Cluster: id.Cluster, Code: CodeHeld}
	}
	return nil
}

// streamLimit returns how many streams the session may have: the lower of the Server's
// limit and the agent's.
func (s *Server) streamLimit(hello *wire.Message) int {
	limit := cmp.Or(s.MaxStreams, 1000)
	if its := hello.Uint(wire.TagLimit); its > 0 && its < uint64(limit) {
		return int(its)
	}
	return limit
}

// serveSession begins a session, which its group then waits for.
func (s *Server) serveSession(sess *agentSession) {
	if !s.registerSession(sess) {
		sess.Mux.Close()
		s.reportRefused(sess.remote, &Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeRevoked})
		return
	}
	sess.expireLater()
	sess.Begin()
	callHook1(s.Hooks.Connected, sess.sessionInfo())
	sess.Go(func() { s.sendPayloads(sess) })
	if a := s.authority.Load(); a != sess.welcomed {
		sess.closeUntrusted(a)
	}
	sess.Serve(nil)
}

func (sess *agentSession) ShutdownCause() error { return sess.server.whyClosed(sess.id.Cluster) }

// HandleRetired makes dials use other sessions.
func (sess *agentSession) HandleRetired() { sess.server.registry.stopDials(sess) }

func (sess *agentSession) HandleClosed() { sess.stopExpiry() }

func (sess *agentSession) HandleEnd(cause error) {
	sess.counts.settle()
	sess.server.registry.remove(sess, cause)
	callHook2(sess.server.Hooks.Disconnected, sess.sessionInfo(), cause)
}

func (sess *agentSession) HandleControl(m *wire.Message) {
	switch m.Kind {
	case wire.MsgRenew:
		sess.server.renewCertificate(sess, m)
	case wire.MsgReceived:
		sess.handleReceived(m)
	case wire.MsgDrain:
		sess.Retire()
	}
}

// registerSession makes the session available to dials, and does what was missed before it
// was registered. It reports whether the agent may stay.
func (s *Server) registerSession(sess *agentSession) bool {
	until := sess.expiry // before others can extend it
	replaced, ok := s.registry.add(sess)
	if !ok {
		return false
	}
	s.peers.tellArrival(sess.id.Cluster)
	for _, old := range replaced {
		s.retireSession(old)
	}
	// The certificate may have been renewed at another replica, or without us.
	s.extendSessions(sess, until)
	for _, old := range s.registry.excessSessions(sess) {
		old.CloseWithCause(errors.New("the agent has too many sessions"))
	}
	if sess.Group.Accepting().Err() != nil {
		s.retireSession(sess)
	}
	s.announcing.Lock()
	defer s.announcing.Unlock()
	if a := s.authority.Load(); a != sess.welcomed {
		sess.sendOrClose(a.addRoots(wire.New(wire.MsgRoots)))
	}
	if !slices.Equal(s.announced, sess.servers) {
		sess.sendOrClose(wire.New(wire.MsgServers).AddStrings(wire.TagServer, s.announced))
	}
	return true
}

// renewEvery is the shortest time between two requests for a certificate, since signing
// takes CPU.
const renewEvery = time.Second

func (s *Server) renewCertificate(sess *agentSession, m *wire.Message) {
	if len(m.Bytes(wire.TagID)) > wire.MaxID || sess.IsBehind() {
		sess.closeLater(errors.New("the agent asks for certificates and does not read the answers, or its request has an id that is too long"))
		return
	}
	if !sess.renewalAsked.IsZero() && time.Since(sess.renewalAsked) < renewEvery {
		sess.sendOrClose(refusalMessage(wire.MsgIssued, CodeInternal, "too soon after the last one").AddBytes(wire.TagID, m.Bytes(wire.TagID)))
		return
	}
	sess.renewalAsked = time.Now()
	ctx, cancel := context.WithTimeout(sess.Group.Context(), session.LingerTimeout)
	defer cancel()
	answer := s.registrar.answerRenew(ctx, sess.id, sess.carrier.State(), m)
	if err := messageError(answer, "renew", sess.id.Cluster, ""); err != nil {
		s.reportRefused(sess.remote, err)
		if codeOf(err) == CodeRevoked { // by another server of the Store
			s.closeRevoked(sess.id, time.Now())
			return
		}
	} else if cert, err := x509.ParseCertificate(answer.Bytes(wire.TagCertificate)); err == nil {
		s.extendSessions(sess, cert.NotAfter)
		sess.proven.Store(cert) // the request has proven its key
		callHook2(s.Hooks.Renewed, sess.id, cert.NotAfter)
	}
	sess.sendOrClose(answer)
}

// extendSessions lets all sessions of the agent live until its latest certificate, that
// of sess, expires: streams on older sessions may outlive the certificate with which
// those began. Each replica of the agent has to show the certificate itself.
func (s *Server) extendSessions(sess *agentSession, until time.Time) {
	for _, its := range s.registry.ofAgent(sess.id) {
		if its.replica == sess.replica {
			its.extendLife(until)
		}
	}
}

func (sess *agentSession) extendLife(until time.Time) {
	sess.state.Lock()
	defer sess.state.Unlock()
	if until.After(sess.expiry) {
		sess.expiry = until
	}
}

// lifeEnd returns when the agent's latest certificate expires.
func (sess *agentSession) lifeEnd() time.Time {
	sess.state.Lock()
	defer sess.state.Unlock()
	return sess.expiry
}

// expireLater closes the session when the agent's latest certificate expires, unless
// stopExpiry is called before.
func (sess *agentSession) expireLater() {
	sess.state.Lock()
	defer sess.state.Unlock()
	left := sess.expiry.Sub(sess.server.registrar.clock())
	switch {
	case sess.Closed(): // stopExpiry has been called, or will be
	case left <= 0:
		sess.Go(func() {
			sess.CloseWithCause(&Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeCertificateExpired})
		})
	default: // it may be renewed meanwhile
		sess.expiring = time.AfterFunc(left, sess.expireLater)
	}
}

func (sess *agentSession) stopExpiry() {
	sess.state.Lock()
	defer sess.state.Unlock()
	if sess.expiring != nil {
		sess.expiring.Stop()
	}
}

// closeUntrusted closes the session if its certificate is of no authority in a.
func (sess *agentSession) closeUntrusted(a *Authority) {
	cert := sess.proven.Load()
	if err := verifyLeaf(cert, a.allCertificates(), withinLife(cert, sess.server.registrar.clock()), x509.ExtKeyUsageClientAuth); err != nil {
		sess.CloseWithCause(&Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeBadCertificate, Err: err})
	}
}

// sendOrClose queues a message for the control stream. It does not block; an agent
// that reads none is dropped.
func (sess *agentSession) sendOrClose(m *wire.Message) {
	if !sess.Send(m) {
		sess.closeLater(errors.New("the agent does not read its control stream"))
	}
}

// closeLater is CloseWithCause for the reader of the control stream, which must not wait.
func (sess *agentSession) closeLater(cause error) {
	sess.Group.Go(func() { sess.CloseWithCause(cause) })
}
