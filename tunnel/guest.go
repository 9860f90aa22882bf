package tunnel

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxGuestStreams is how many streams a peer may have open at once.
const maxGuestStreams = 1 << 16

// guest is this end of a session with another replica that dialed this one: it
// asks, and we serve.
type guest struct {
	server  *Server
	name    string // the replica's
	cert    *x509.Certificate
	mux     *mux.Session
	group   *group.Group
	out     outbox
	streams *group.Group
}

// greetPeer reads a peer's HELLO and answers it. One that is this replica itself
// finds that in the answer, and leaves.
func (s *Server) greetPeer(ctx context.Context, g *group.Group, c *carrier.Conn) (*guest, error) {
	if err := s.enroller.verifyPeer(c.State()); err != nil {
		refused := &Error{Op: "connect", Code: CodeBadCertificate, Err: err}
		refuseStranger(ctx, c, refused)
		return nil, refused
	}
	c.Admit()
	m := mux.Server(c, s.KeepAlive.mux(maxGuestStreams))
	control, hello, err := readHello(ctx, m)
	if err != nil {
		m.Close()
		return nil, badPeer(ctx, "connect", "", err)
	}
	var refused error
	if !hello.Speaks() {
		refused = &Error{Op: "connect", Code: CodeVersion}
	}
	name := hello.Text(wire.TagServer)
	if err := wire.CheckReplica(name); refused == nil && err != nil {
		refused = &Error{Op: "connect", Code: CodeBadRequest, Err: err}
	}
	if refused != nil {
		answerLast(ctx, control, refusalOf(wire.MsgRefusal, refused))
		m.Close()
		return nil, refused
	}
	welcome := wire.New(wire.MsgWelcome).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, s.peers.id).
		AddString(wire.TagServer, s.name).AddTime(wire.TagTime, time.Now())
	peer := &guest{server: s, name: name, cert: c.State().PeerCertificates[0], mux: m, group: g, out: outbox{control: control}, streams: group.New(g.Context())}
	peer.out.add(welcome)
	return peer, nil
}

// serve serves the peer until the session has ended.
func (g *guest) serve() {
	s := g.server
	s.peers.addGuest(g)
	if g.group.Accepting().Err() != nil {
		g.out.add(wire.New(wire.MsgDrain))
	}
	stop := context.AfterFunc(g.group.Context(), func() { g.end(s.whyClosed("")) })
	g.out.start(g.end)
	g.endUntrusted() // the authority may have been replaced since the handshake
	g.mux.Serve(g.accept)
	g.end(g.readControl())
	stop()
	g.streams.Close()
	g.streams.Cancel() // dials that are under way are for nobody
	<-g.streams.Idle()
	g.out.close()
	s.peers.removeGuest(g)
}

func (g *guest) end(cause error) { g.mux.CloseWithError(cause) }

// endUntrusted ends the session if the replica's certificate is of no authority any
// more.
func (g *guest) endUntrusted() {
	e := g.server.enroller
	if err := e.trustsPeer(g.cert, inLife(g.cert, e.clock())); err != nil {
		g.end(&Error{Op: "connect", Code: CodeBadCertificate, Err: err})
	}
}

func (g *guest) readControl() error {
	for {
		m, err := wire.Read(g.out.control, wire.MaxBody)
		if err != nil {
			return err
		}
		if m.Kind == wire.MsgRevoked {
			g.server.revoked(m)
		}
	}
}

// accept must not wait.
func (g *guest) accept(stream *mux.Stream) {
	if !g.streams.Go(func() { g.serveStream(stream) }) {
		stream.Reset(uint32(CodeDraining))
	}
}

// serveStream does what the peer asks for.
func (g *guest) serveStream(stream *mux.Stream) {
	defer stream.Close()
	var far *mux.Stream
	apart(func() { far = g.answer(stream) })
	if far != nil {
		joinStreams(g.streams.Context(), stream, far)
	}
}

// answer answers the peer's question. It returns the stream of an agent to relay
// to, nil if there is none.
func (g *guest) answer(stream *mux.Stream) *mux.Stream {
	stream.SetReadDeadline(time.Now().Add(orDefault(g.server.HandshakeTimeout, 15*time.Second)))
	m, err := wire.Read(stream, wire.MaxRequest)
	if err != nil {
		stream.Reset(uint32(CodeBadRequest))
		return nil
	}
	stream.SetReadDeadline(time.Time{})
	switch m.Kind {
	case wire.MsgAsk:
		wire.Write(stream, wire.New(wire.MsgHave).AddUint(wire.TagCode, uint64(g.server.has(m.Text(wire.TagCluster)))))
	case wire.MsgForward:
		return g.forward(stream, m)
	case wire.MsgFleet:
		g.server.tellStatus(stream)
	default:
		stream.Reset(uint32(CodeBadRequest))
	}
	return nil
}

// has says what there is for a dial that a peer would forward.
func (s *Server) has(cluster string) Code {
	sess := s.registry.next(cluster, nil)
	switch {
	case sess != nil && sess.suspected():
		return CodeTimeout
	case sess != nil:
		return 0
	case s.peers.isDraining():
		return CodeDraining
	}
	return codeNotHere
}

// forward dials what the peer asks for and answers. The peer has said who may.
func (g *guest) forward(stream *mux.Stream, m *wire.Message) *mux.Stream {
	ctx, cancel := dialContext(g.streams.Context(), stream, m)
	defer cancel()
	d := &Dialer{server: g.server, cluster: m.Text(wire.TagCluster)}
	far, err := d.forwardedDial(ctx, m.Text(wire.TagNetwork), m.Text(wire.TagAddress))
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

// forwardedDial dials by this replica's sessions alone.
func (d *Dialer) forwardedDial(ctx context.Context, network, address string) (*mux.Stream, *Error) {
	if err := checkTarget(network, address); err != nil {
		return nil, d.fail(address, CodeBadRequest, err)
	}
	return d.walk(ctx, network, address, map[*session]bool{}, true)
}

// forwardedError says in a code of the wire what another replica may do better.
func forwardedError(err *Error) *Error {
	switch err.Code {
	case CodeNoAgent, CodeLost:
		return &Error{Op: err.Op, Cluster: err.Cluster, Addr: err.Addr, Code: codeNotHere}
	case CodeCanceled, CodeClosed:
		return &Error{Op: err.Op, Cluster: err.Cluster, Addr: err.Addr, Code: CodeDraining}
	}
	return err
}
