package tunnel

import (
	"cmp"
	"context"
	"crypto/x509"
	"time"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxPeerStreams is how many streams a peer may have open at once.
const maxPeerStreams = 1 << 16

// inboundPeer is this end of a session that another replica has opened. The other
// replica opens streams, and this one dials for them by its agents.
type inboundPeer struct {
	session.Session
	server *Server
	name   string // the replica's
	cert   *x509.Certificate
}

// acceptPeer reads a peer's HELLO and answers it. If the peer is this replica itself,
// it sees that in the answer, and closes the session.
func (s *Server) acceptPeer(ctx context.Context, g *group.Group, c *carrier.Conn) (*inboundPeer, error) {
	if err := s.enroller.verifyPeer(c.State()); err != nil {
		refused := &Error{Op: "connect", Code: CodeBadCertificate, Err: err}
		session.RefuseStranger(ctx, c, refusalOf(wire.MsgRefusal, refused))
		return nil, refused
	}
	c.Admit()
	m := mux.Server(c, s.KeepAlive.muxConfig(maxPeerStreams))
	control, hello, err := acceptHello(ctx, m, "", func(hello *wire.Message) *Error {
		if err := wire.CheckReplica(hello.Text(wire.TagServer)); err != nil {
			return &Error{Op: "connect", Code: CodeBadRequest, Err: err}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	welcome := wire.New(wire.MsgWelcome).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, s.peers.id).
		AddString(wire.TagServer, s.name).AddTime(wire.TagTime, time.Now())
	p := &inboundPeer{
		server: s, name: hello.Text(wire.TagServer), cert: c.State().PeerCertificates[0],
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
	p.Serve(p.serveStream)
}

func (p *inboundPeer) HandleControl(m *wire.Message) {
	if m.Kind == wire.MsgRevoked {
		p.server.handleRevoked(m)
	}
}

func (p *inboundPeer) HandleRetired()       {}
func (p *inboundPeer) HandleClosed()        {}
func (p *inboundPeer) HandleEnd(error)      { p.server.peers.removeInbound(p) }
func (p *inboundPeer) ShutdownCause() error { return p.server.whyClosed("") }

// closeUntrusted closes the session if the replica's certificate is of no authority
// that is still trusted.
func (p *inboundPeer) closeUntrusted() {
	if err := p.server.enroller.trustsPeerNow(p.cert); err != nil {
		p.CloseWithCause(&Error{Op: "connect", Code: CodeBadCertificate, Err: err})
	}
}

// serveStream serves one request of the peer.
func (p *inboundPeer) serveStream(stream *mux.Stream) {
	defer stream.Close()
	var far *mux.Stream
	onOwnStack(func() { far = p.answerRequest(stream) })
	if far != nil {
		session.Bridge(p.Streams.Context(), stream, far)
	}
}

// answerRequest answers the request of the stream. If that was to dial, it returns the
// agent's stream, else nil.
func (p *inboundPeer) answerRequest(stream *mux.Stream) *mux.Stream {
	stream.SetReadDeadline(time.Now().Add(cmp.Or(p.server.HandshakeTimeout, 15*time.Second)))
	m, err := wire.Read(stream, wire.MaxRequest)
	if err != nil {
		stream.Reset(uint32(CodeBadRequest))
		return nil
	}
	stream.SetReadDeadline(time.Time{})
	switch m.Kind {
	case wire.MsgAsk:
		wire.Write(stream, wire.New(wire.MsgHave).AddUint(wire.TagCode, uint64(p.server.hasAgent(m.Text(wire.TagCluster)))))
	case wire.MsgForward:
		return p.dialFor(stream, m)
	case wire.MsgFleet:
		p.server.sendStatus(stream)
	default:
		stream.Reset(uint32(CodeBadRequest))
	}
	return nil
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
func (p *inboundPeer) dialFor(stream *mux.Stream, m *wire.Message) *mux.Stream {
	ctx, cancel := dialContext(p.Streams.Context(), stream, m)
	defer cancel()
	d := &Dialer{server: p.server, cluster: m.Text(wire.TagCluster)}
	far, err := d.dialForwarded(ctx, m.Text(wire.TagNetwork), m.Text(wire.TagAddress))
	if err != nil {
		wire.Write(stream, refusalOf(wire.MsgDialed, forwardedError(err)))
		return nil
	}
	if wire.Write(stream, wire.New(wire.MsgDialed)) != nil {
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
