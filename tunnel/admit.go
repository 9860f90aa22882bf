package tunnel

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

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
	ctx, cancel := context.WithTimeout(g.Context(), cmp.Or(s.HandshakeTimeout, 15*time.Second))
	defer cancel()
	p, err := s.admission.Enter(ctx, conn)
	if err != nil {
		s.Hooks.reportRefused(conn.RemoteAddr(), badPeer(ctx, "connect", "", err))
		return nil
	}
	defer p.Leave()
	ctx = p.Context()
	c, err := carrier.Accept(p, conn, s.tls)
	if err != nil {
		s.Hooks.reportRefused(conn.RemoteAddr(), badPeer(ctx, "connect", "", err))
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
		s.Hooks.reportRefused(conn.RemoteAddr(), err)
	case protoPeer:
		peer, err := s.greetPeer(ctx, g, c)
		if err == nil {
			return peer.start
		}
		s.Hooks.reportRefused(conn.RemoteAddr(), err)
	default:
		s.Hooks.reportRefused(conn.RemoteAddr(), &Error{Op: "connect", Code: CodeVersion, Err: errors.New("the client offered no protocol of the tunnel by ALPN")})
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

// checkWelcome returns why the answer to HELLO is no WELCOME.
func checkWelcome(answer *wire.Message, cluster, server string) error {
	switch {
	case answer.Kind == wire.MsgRefusal:
		if err := messageError(answer, "connect", cluster, server); err != nil {
			return err
		}
		return wire.ErrMalformed
	case answer.Kind != wire.MsgWelcome || answer.Uint(wire.TagVersion) != wire.Version:
		return &Error{Op: "connect", Addr: server, Code: CodeVersion, Err: wire.ErrMalformed}
	}
	return nil
}

// acceptHello accepts the control stream and reads HELLO. If its version is not
// spoken here, or check returns an error, the client reads why, and the session ends.
func acceptHello(ctx context.Context, m *mux.Session, cluster string, check func(hello *wire.Message) *Error) (*mux.Stream, *wire.Message, error) {
	control, hello, err := session.ReadHello(ctx, m)
	if err != nil {
		m.Close()
		return nil, nil, badPeer(ctx, "connect", cluster, err)
	}
	refused := &Error{Op: "connect", Cluster: cluster, Code: CodeVersion}
	if hello.Speaks() {
		refused = check(hello)
	}
	if refused != nil {
		session.AnswerLast(ctx, control, refusalOf(wire.MsgRefusal, refused))
		m.Close()
		return nil, nil, refused
	}
	return control, hello, nil
}
