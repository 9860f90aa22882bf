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

// serveCarrier serves a new carrier. It returns when the carrier has ended, or when a
// session has begun, which then stays in the group.
func (s *Server) serveCarrier(g *group.Group, conn net.Conn) {
	serve, err := s.admit(g, conn)
	if err != nil {
		s.reportRefused(conn.RemoteAddr(), err)
	}
	if serve != nil {
		serve() // its session has the carrier
		return
	}
	conn.Close()
}

// onOwnStack runs f on its own goroutine, and waits, so that f's stack is freed when it
// returns. That of a handshake would else stay with a goroutine that waits for hours.
func onOwnStack(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Wait()
}

// admit returns the function that serves the session of a new carrier. It is nil if the
// carrier was for an enrolment, or was refused.
func (s *Server) admit(g *group.Group, conn net.Conn) (serve func(), err error) {
	ctx, cancel := context.WithTimeout(g.Context(), cmp.Or(s.HandshakeTimeout, 15*time.Second))
	defer cancel()
	p, err := s.admission.Enter(ctx, conn)
	if err != nil {
		return nil, handshakeError(ctx, "connect", "", err)
	}
	defer p.Leave()
	ctx = p.Context()
	c, err := carrier.Accept(p, conn, s.tls)
	if err != nil {
		return nil, handshakeError(ctx, "connect", "", err)
	}
	switch c.State().NegotiatedProtocol {
	case protoEnroll:
		s.serveEnrolment(ctx, c)
	case protoTunnel:
		var sess *agentSession
		if sess, err = s.acceptAgent(ctx, g, c); err == nil {
			return func() { s.serveSession(sess) }, nil
		}
	case protoPeer:
		var peer *inboundPeer
		if peer, err = s.acceptPeer(ctx, g, c); err == nil {
			return peer.start, nil
		}
	default:
		err = &Error{Op: "connect", Code: CodeVersion, Err: errors.New("the client offered no protocol of the tunnel by ALPN")}
	}
	c.Close()
	return nil, err
}

// handshakeError returns the error of a carrier on which no session and no enrolment began.
func handshakeError(ctx context.Context, op, cluster string, err error) *Error {
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

// checkWelcome returns an error unless the answer to HELLO is a WELCOME.
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

// acceptHello accepts the control stream and reads HELLO. If the version is not ours,
// or check returns an error, it sends a REFUSAL, and the session ends.
func acceptHello(ctx context.Context, m *mux.Session, cluster string, check func(hello *wire.Message) *Error) (*mux.Stream, *wire.Message, error) {
	control, hello, err := session.ReadHello(ctx, m)
	if err != nil {
		m.Close()
		return nil, nil, handshakeError(ctx, "connect", cluster, err)
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
