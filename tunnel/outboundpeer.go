package tunnel

import (
	"context"
	"crypto/x509"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// outboundPeer is this end of a session that this replica has opened to another one.
// It opens streams, and the other replica dials for them by its agents.
type outboundPeer struct {
	session.Session
	peer     *peer
	name     string            // the replica's
	cert     *x509.Certificate // the replica's
	rotateAt time.Time         // when another session replaces it, before the certificates expire
	opened   atomic.Uint64

	replacing   sync.Once
	replaceNow  chan struct{} // closed by replaceSoon
	retiredDone chan struct{} // closed when it takes no more streams
}

func newOutboundPeer(p *peer, c *carrier.Conn, m *mux.Session, control *mux.Stream, name string) *outboundPeer {
	l := &outboundPeer{
		peer: p, name: name, cert: c.State().PeerCertificates[0],
		replaceNow: make(chan struct{}), retiredDone: make(chan struct{}),
	}
	l.Init(session.Config{Role: l, Mux: m, Control: control, Group: p.peers.group, Dialed: true})
	return l
}

// replaceSoon makes the peer open another session: stream ids run out, or another
// authority signs. This one takes dials until then.
func (l *outboundPeer) replaceSoon() { l.replacing.Do(func() { close(l.replaceNow) }) }

// closeUntrusted closes the session if the replica's certificate is of no authority
// that is still trusted.
func (l *outboundPeer) closeUntrusted() {
	if err := l.peer.peers.server.enroller.trustsPeerNow(l.cert); err != nil {
		l.CloseWithCause(&Error{Op: "connect", Addr: l.peer.address, Code: CodeServerCertificate, Err: err})
	}
}

// awaitReplacing returns when another session is needed. It reports whether this one
// takes streams until then.
func (l *outboundPeer) awaitReplacing(ctx context.Context) bool {
	rotate := time.NewTimer(time.Until(l.rotateAt))
	defer rotate.Stop()
	select {
	case <-rotate.C:
		return true
	case <-l.replaceNow:
		return true
	case <-l.retiredDone:
	case <-l.Mux.Done():
	case <-ctx.Done():
	}
	return false
}

// start begins to serve control messages.
func (l *outboundPeer) start() {
	l.Begin()
	callHook1(l.peer.peers.server.Hooks.PeerConnected, l.name)
	l.closeUntrusted() // the authority may have been replaced since the handshake
	l.Serve(nil)
}

func (l *outboundPeer) HandleControl(m *wire.Message) {
	switch m.Kind {
	case wire.MsgDrain:
		l.peer.recordDraining()
		l.Retire()
	case wire.MsgRevoked:
		l.peer.peers.server.handleRevoked(m)
	}
}

// HandleRetired tells the agents that the replica takes no more sessions.
func (l *outboundPeer) HandleRetired() {
	close(l.retiredDone)
	l.peer.peers.server.announceServers()
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
