package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
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
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

const (
	// lingerTimeout is how long the side that said the last word waits for
	// the other to hang up.
	lingerTimeout = 5 * time.Second
	// maxRefused is of all that comes from a client without a session.
	maxRefused = wire.MaxHello + 2<<10
)

// session is the server's end of one agent's session.
type session struct {
	prober
	id      Identity
	number  string // unique in the server's life
	remote  net.Addr
	since   time.Time
	seq     uint64           // a later session has a higher one
	clock   func() time.Time // of certificates
	carrier *carrier.Conn    // of mux
	out     outbox
	limit   int           // of streams: the agent's or ours
	opens   chan struct{} // holds one: who opens a stream
	// byIdentify: Server.Identify vouches for the agent, and no authority.
	byIdentify bool
	// welcomed is by whose certificates the agent was let in, and which it was
	// told to trust.
	welcomed *Authority
	servers  []string    // the names that it was told in its WELCOME
	stop     func() bool // the watch of the group's context
	work     sync.WaitGroup

	asked time.Time // for a certificate; takeControl's

	retired atomic.Bool // takes no new streams
	opened  atomic.Uint64
	failed  atomic.Uint64

	mu      sync.Mutex            // guards the fields below
	waiting map[string]chan error // payloads by id
	cause   error
	expiry  time.Time // of the agent's latest certificate
	expires *time.Timer
	cert    *x509.Certificate // the latest whose key was proven on this carrier
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
		guest, err := s.greetPeer(ctx, g, c)
		if err == nil {
			return guest.serve
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
func (s *Server) greet(ctx context.Context, g *group.Group, c *carrier.Conn) (*session, error) {
	a := s.authority.Load() // before it is asked: serveSession looks for a later one
	asking, cancel := answering(ctx)
	defer cancel()
	id, cert, byIdentify, err := s.enroller.identify(asking, c.State())
	if err != nil {
		refuseStranger(ctx, c, err)
		return nil, err
	}
	c.Admit()
	m := mux.Server(c, s.KeepAlive.mux(1)) // agents open the control stream alone
	control, hello, err := readHello(ctx, m)
	if err != nil {
		m.Close()
		return nil, badPeer(ctx, "connect", id.Cluster, err)
	}
	var refused error
	switch {
	case !hello.Speaks():
		refused = &Error{Op: "connect", Cluster: id.Cluster, Code: CodeVersion}
	case s.holds(hello):
		refused = &Error{Op: "connect", Cluster: id.Cluster, Code: CodeHeld}
	}
	if refused != nil {
		refuse(ctx, control, refused)
		m.Close()
		return nil, refused
	}
	seq := s.seq.Add(1)
	sess := &session{
		id: id, byIdentify: byIdentify, number: strconv.FormatUint(seq, 10), seq: seq,
		prober: prober{mux: m, group: g}, remote: c.RemoteAddr(), since: time.Now(), carrier: c, clock: s.enroller.clock,
		expiry: cert.NotAfter, cert: cert, waiting: map[string]chan error{}, welcomed: a,
		out: outbox{control: control}, opens: make(chan struct{}, 1), limit: s.limit(hello), servers: s.servers(),
	}
	welcome := wire.New(wire.MsgWelcome).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, sess.number).AddTime(wire.TagTime, time.Now())
	if byIdentify { // its certificate does not say who it is here
		welcome.AddString(wire.TagCluster, id.Cluster).AddString(wire.TagName, id.Agent)
	}
	sess.send(a.addRoots(welcome).AddStrings(wire.TagServer, sess.servers))
	return sess, nil
}

// refuse tells an agent why, and waits until it has read it and left.
func refuse(ctx context.Context, control *mux.Stream, why error) {
	answerLast(ctx, control, refusalOf(wire.MsgRefusal, why))
}

// refuseStranger is refuse for a client without an accepted certificate: it
// gets no session, which would have room for what it sends.
func refuseStranger(ctx context.Context, c *carrier.Conn, why error) {
	stop := context.AfterFunc(ctx, func() { socket.Innermost(c).Close() })
	defer stop()
	c.Limit(maxRefused)
	m := refusalOf(wire.MsgRefusal, why)
	if mux.Refuse(c, m.Encode()) != nil {
		return
	}
	lingered := time.AfterFunc(lingerTimeout, func() { socket.Innermost(c).Close() })
	defer lingered.Stop()
	var b [512]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return
		}
	}
}

// answerLast writes the last message, and waits until the other side has read
// it and left.
func answerLast(ctx context.Context, control *mux.Stream, m *wire.Message) {
	ctx, cancel := context.WithTimeout(ctx, lingerTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { control.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if wire.Write(control, m) == nil && control.CloseWrite() == nil {
		io.Copy(io.Discard, control)
	}
}

// limit is how many streams the session may have, by either side.
func (s *Server) limit(hello *wire.Message) int {
	limit := orDefault(s.MaxStreams, 1000)
	if its := hello.Uint(wire.TagLimit); its > 0 && its < uint64(limit) {
		return int(its)
	}
	return limit
}

// readHello accepts the control stream.
func readHello(ctx context.Context, m *mux.Session) (*mux.Stream, *wire.Message, error) {
	control, err := m.Accept(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetReadDeadline(time.Unix(1, 0)) })
	hello, err := wire.Read(control, wire.MaxHello)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && hello.Kind != wire.MsgHello {
		err = errors.New("the first message is not HELLO")
	}
	return control, hello, err
}

// serveSession begins a session. Its group then waits for it, and nothing else:
// it has no goroutine until something comes.
func (s *Server) serveSession(sess *session) {
	if !s.register(sess) {
		sess.mux.Close()
		s.Hooks.refused(sess.remote, &Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeRevoked})
		return
	}
	sess.group.Stay()
	sess.stop = context.AfterFunc(sess.group.Context(), func() { sess.end(s.whyClosed(sess.id.Cluster)) })
	sess.expireLater()
	sess.out.start(sess.end)
	s.Hooks.connected(sess.info())
	sess.work.Go(func() { s.sendPayloads(sess) })
	if a := s.authority.Load(); a != sess.welcomed {
		sess.endUntrusted(a)
	}
	s.awaitControl(sess)
}

// endSession is the end of what serveSession began.
func (s *Server) endSession(sess *session, cause error) {
	defer sess.group.Leave()
	sess.end(cause)
	sess.stop()
	sess.stopExpiry()
	sess.out.close()
	sess.work.Wait()
	err := sess.lost()
	s.registry.remove(sess, err)
	s.Hooks.disconnected(sess.info(), err)
}

// register lets dials come to the session, and catches up with what happened
// while it was not registered. It reports whether the agent may stay.
func (s *Server) register(sess *session) bool {
	until := sess.expiry // before others can extend it
	replaced, ok := s.registry.add(sess)
	if !ok {
		return false
	}
	for _, old := range replaced {
		old.send(wire.New(wire.MsgDrain))
	}
	// The certificate may have been renewed at another replica, or without us.
	s.extend(sess, until)
	for _, old := range s.registry.excess(sess.id) {
		old.end(errors.New("the agent has too many sessions"))
	}
	if sess.group.Accepting().Err() != nil {
		s.retire(sess)
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	if a := s.authority.Load(); a != sess.welcomed {
		sess.send(a.addRoots(wire.New(wire.MsgRoots)))
	}
	if !slices.Equal(s.told, sess.servers) {
		sess.send(wire.New(wire.MsgServers).AddStrings(wire.TagServer, s.told))
	}
	return true
}

// awaitControl has takeControl called when there is something to take.
func (s *Server) awaitControl(sess *session) {
	sess.out.control.AfterReadable(func() { s.takeControl(sess) })
}

// takeControl takes a message of the control stream, or its end. One call
// follows the other.
func (s *Server) takeControl(sess *session) {
	m, err := wire.Read(sess.out.control, wire.MaxBody)
	if err != nil {
		s.endSession(sess, err)
		return
	}
	switch m.Kind {
	case wire.MsgRenew:
		s.renew(sess, m)
	case wire.MsgReceived:
		sess.received(m)
	case wire.MsgDrain:
		s.registry.retire(sess)
	}
	s.awaitControl(sess)
}

// renewEvery is how often a session may ask for a certificate: signing costs.
const renewEvery = time.Second

func (s *Server) renew(sess *session, m *wire.Message) {
	if !sess.asked.IsZero() && time.Since(sess.asked) < renewEvery {
		sess.send(refusal(wire.MsgIssued, CodeInternal, "too soon after the last one").AddBytes(wire.TagID, m.Bytes(wire.TagID)))
		return
	}
	sess.asked = time.Now()
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
		sess.mu.Lock()
		sess.cert = cert // the request has proven its key
		sess.mu.Unlock()
		s.Hooks.renewed(sess.id, cert.NotAfter)
	}
	sess.send(answer)
}

// extend has all sessions of the agent live until its latest certificate ends,
// which is of sess: streams on the older ones may outlive the certificate that
// those began with. The authority does not speak for Identify, nor the other way
// round.
func (s *Server) extend(sess *session, until time.Time) {
	for _, its := range s.registry.ofAgent(sess.id) {
		if its.byIdentify == sess.byIdentify {
			its.extend(until)
		}
	}
}

func (sess *session) extend(until time.Time) {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if until.After(sess.expiry) {
		sess.expiry = until
	}
}

// until is when the agent's latest certificate ends.
func (sess *session) until() time.Time {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	return sess.expiry
}

// expireLater ends the session when the agent's latest certificate is past
// its life, unless stopExpiry is called before.
func (sess *session) expireLater() {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	sess.expires = time.AfterFunc(sess.expiry.Sub(sess.clock()), sess.expire)
}

func (sess *session) stopExpiry() {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	sess.expires.Stop()
	sess.expires = nil
}

func (sess *session) expire() {
	if sess.expired() {
		sess.end(&Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeCertificateExpired})
	}
}

// expired sets the timer again if the certificate was renewed.
func (sess *session) expired() bool {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.expires == nil {
		return false
	}
	left := sess.expiry.Sub(sess.clock())
	if left > 0 {
		sess.expires.Reset(left)
	}
	return left <= 0
}

// end ends the session and its streams; the first cause counts. To who has a
// stream it is a reset: net.ErrClosed would say that it closed the stream itself.
func (sess *session) end(cause error) {
	sess.mu.Lock()
	if sess.cause == nil {
		sess.cause = cause
	}
	cause = sess.cause
	sess.mu.Unlock()
	sess.mux.CloseWithError(cause)
}

// endUntrusted ends the session if its certificate is of no authority in a.
func (sess *session) endUntrusted(a *Authority) {
	if sess.byIdentify {
		return
	}
	sess.mu.Lock()
	cert := sess.cert
	sess.mu.Unlock()
	if err := verifyLeaf(cert, a.all(), x509.ExtKeyUsageClientAuth, inLife(cert, sess.clock())); err != nil {
		sess.end(&Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeBadCertificate, Err: err})
	}
}

// lost returns why the session ended; nil if the agent ended it in order.
func (sess *session) lost() error {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if errors.Is(sess.cause, io.EOF) {
		return nil
	}
	return sess.cause
}

// send queues a message for the control stream. It does not block; an agent
// that reads none is dropped.
func (sess *session) send(m *wire.Message) {
	if !sess.out.add(m) {
		sess.group.Go(func() { sess.end(errors.New("the agent does not read its control stream")) })
	}
}
