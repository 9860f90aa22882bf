package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

const (
	// lingerTimeout is how long the side that said the last word waits for
	// the other to hang up.
	lingerTimeout = 5 * time.Second
)

// session is the server's end of one agent's session.
type session struct {
	id     Identity
	number string // unique in the server's life
	mux    *mux.Session
	group  *group
	remote net.Addr
	since  time.Time
	seq    uint64 // a later session has a higher one
	tls    *tls.ConnectionState
	out    outbox

	retired atomic.Bool  // takes no new streams
	dialing atomic.Int64 // dials without an answer
	opened  atomic.Uint64
	failed  atomic.Uint64
	suspect atomic.Int64 // unix nanoseconds of the last probe that failed

	mu      sync.Mutex            // guards the fields below
	waiting map[string]chan error // payloads by id
	cause   error
	probing *probe
	expiry  time.Time // of the agent's latest certificate
}

// serveCarrier takes a carrier from its first byte to its end.
func (s *Server) serveCarrier(g *group, conn net.Conn) {
	defer conn.Close()
	select {
	case s.pending <- struct{}{}:
	default:
		s.Hooks.refused(conn.RemoteAddr(), &Error{Op: "connect", Code: CodeTooManyStreams, Err: errors.New("too many carriers in their handshake")})
		return
	}
	handshake := sync.OnceFunc(func() { <-s.pending })
	defer handshake()
	ctx, cancel := context.WithTimeout(g.ctx, orDefault(s.HandshakeTimeout, 15*time.Second))
	defer cancel()
	c, err := secure(ctx, conn, s.enroller.tlsConfig(), true)
	if err != nil {
		s.Hooks.refused(conn.RemoteAddr(), &Error{Op: "connect", Code: CodeBadRequest, Err: err})
		return
	}
	defer c.Close()
	switch c.state().NegotiatedProtocol {
	case protoEnroll:
		s.serveEnrolment(ctx, c)
	case protoTunnel:
		sess, err := s.greet(ctx, g, c)
		handshake()
		if err != nil {
			s.Hooks.refused(conn.RemoteAddr(), err)
			return
		}
		s.serveSession(sess)
	default:
		s.Hooks.refused(conn.RemoteAddr(), &Error{Op: "connect", Code: CodeVersion, Err: errors.New("the client offered no protocol of the tunnel by ALPN")})
	}
}

// serveEnrolment answers one ENROLL.
func (s *Server) serveEnrolment(ctx context.Context, c *carrier) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	m, err := readMessage(c, maxMessage)
	if err != nil {
		s.Hooks.refused(c.RemoteAddr(), &Error{Op: "enroll", Code: CodeBadRequest, Err: err})
		return
	}
	answer, id, err := s.enroller.enroll(ctx, c.state(), m)
	if err != nil {
		s.Hooks.refused(c.RemoteAddr(), err)
	} else {
		s.Hooks.enrolled(id)
	}
	if writeMessage(c, answer) != nil || c.Flush() != nil {
		return
	}
	// Closing at once might overtake the answer.
	c.SetReadDeadline(time.Now().Add(lingerTimeout))
	io.CopyN(io.Discard, c, 1)
}

// greet reads HELLO and answers it. The session is registered, so the first
// dial may come before greet returns.
func (s *Server) greet(ctx context.Context, g *group, c *carrier) (*session, error) {
	id, cert, refused := s.enroller.identify(ctx, c.state())
	m := mux.Server(c, s.KeepAlive.mux(1)) // agents open the control stream alone
	control, hello, err := readHello(ctx, m)
	if err != nil {
		m.Close()
		return nil, &Error{Op: "connect", Cluster: id.Cluster, Code: CodeBadRequest, Err: err}
	}
	if refused == nil && !speaks(hello, protocolVersion) {
		refused = &Error{Op: "connect", Cluster: id.Cluster, Code: CodeVersion}
	}
	if refused != nil {
		control.SetDeadline(time.Now().Add(lingerTimeout))
		if writeMessage(control, refusalOf(msgRefusal, refused)) == nil && control.CloseWrite() == nil {
			io.Copy(io.Discard, control) // until the agent has read it and left
		}
		m.Close()
		return nil, refused
	}
	seq := s.seq.Add(1)
	sess := &session{
		id: id, number: strconv.FormatUint(seq, 10), seq: seq,
		mux: m, group: g, remote: c.RemoteAddr(), since: time.Now(), tls: c.state(),
		expiry: cert.NotAfter, waiting: map[string]chan error{},
		out: outbox{control: control, wake: make(chan struct{}, 1)},
	}
	sess.send(s.authority.Load().addRoots((&message{kind: msgWelcome}).uint(tagVersion, protocolVersion).
		string(tagID, sess.number).time(tagTime, time.Now())))
	return sess, nil
}

// readHello accepts the control stream.
func readHello(ctx context.Context, m *mux.Session) (*mux.Stream, *message, error) {
	control, err := m.Accept(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	hello, err := readMessage(control, maxMessage)
	if err == nil && hello.kind != msgHello {
		err = errors.New("the first message is not HELLO")
	}
	return control, hello, err
}

// serveSession reads the control stream until the session ends.
func (s *Server) serveSession(sess *session) {
	for _, old := range s.registry.add(sess) {
		old.send(&message{kind: msgDrain})
	}
	if sess.group.accepting.Err() != nil {
		s.registry.retire(sess)
		sess.send(&message{kind: msgDrain})
	}
	stop := context.AfterFunc(sess.group.ctx, func() { sess.end(net.ErrClosed) })
	expire := sess.expireLater()
	var wg sync.WaitGroup
	wg.Go(func() { sess.end(sess.out.run(sess.mux)) })
	info := sess.info()
	s.Hooks.connected(info)
	wg.Go(func() { s.sendPayloads(sess) })
	sess.end(s.readControl(sess))
	stop()
	expire.Stop()
	wg.Wait()
	err := sess.lost()
	s.registry.remove(sess, err)
	s.Hooks.disconnected(info, err)
}

func (s *Server) readControl(sess *session) error {
	for {
		m, err := readMessage(sess.out.control, maxMessage)
		if err != nil {
			return err
		}
		switch m.kind {
		case msgRenew:
			s.renew(sess, m)
		case msgReceived:
			sess.received(m)
		case msgDrain:
			s.registry.retire(sess)
		}
	}
}

func (s *Server) renew(sess *session, m *message) {
	ctx, cancel := context.WithTimeout(sess.group.ctx, lingerTimeout)
	defer cancel()
	answer := s.enroller.renew(ctx, sess.id, sess.tls, m)
	if err := answer.failure("renew", sess.id.Cluster, ""); err != nil {
		s.Hooks.refused(sess.remote, err)
	} else if cert, err := x509.ParseCertificate(answer.get(tagCertificate)); err == nil {
		// All sessions of the agent: streams on the older ones may outlive
		// the certificate that those began with.
		for _, its := range s.registry.ofAgent(sess.id) {
			its.extend(cert.NotAfter)
		}
		s.Hooks.renewed(sess.id, cert.NotAfter)
	}
	sess.send(answer)
}

func (sess *session) extend(until time.Time) {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if until.After(sess.expiry) {
		sess.expiry = until
	}
}

// expireLater ends the session when the agent's latest certificate is past
// its life. The caller stops the timer.
func (sess *session) expireLater() *time.Timer {
	var t *time.Timer
	ready := make(chan struct{})
	t = time.AfterFunc(time.Until(sess.expiry), func() {
		<-ready
		sess.mu.Lock()
		left := time.Until(sess.expiry)
		sess.mu.Unlock()
		if left > 0 {
			t.Reset(left)
			return
		}
		sess.end(&Error{Op: "connect", Cluster: sess.id.Cluster, Code: CodeCertificateExpired})
	})
	close(ready)
	return t
}

// end ends the session and its streams; the first cause counts.
func (sess *session) end(cause error) {
	sess.mu.Lock()
	if sess.cause == nil {
		sess.cause = cause
	}
	sess.mu.Unlock()
	sess.mux.Close()
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
func (sess *session) send(m *message) {
	if !sess.out.add(m) {
		sess.group.start(func() { sess.end(errors.New("the agent does not read its control stream")) })
	}
}
