package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// peerLink is this end of a session with another replica that was dialed from
// here: the one that forwards.
type peerLink struct {
	prober
	peer     *peer
	name     string // the replica's
	since    time.Time
	cert     *x509.Certificate // the replica's
	rotateAt time.Time         // the certificates are not for ever
	out      outbox
	opened   atomic.Uint64
	wearing  sync.Once
	worn     chan struct{} // closed when stream ids run out, or another authority signs

	retiring sync.Once
	retired  chan struct{} // closed when it takes no more streams

	mu    sync.Mutex // guards the field below
	cause error
}

func newPeerLink(p *peer, c *carrier.Conn, m *mux.Session, control *mux.Stream, name string) *peerLink {
	return &peerLink{
		prober: prober{mux: m, group: p.peers.group}, peer: p, name: name, since: time.Now(), cert: c.State().PeerCertificates[0],
		out: outbox{control: control}, worn: make(chan struct{}), retired: make(chan struct{}),
	}
}

// wear has the replica connected anew; this session takes dials until then.
func (l *peerLink) wear() { l.wearing.Do(func() { close(l.worn) }) }

// endUntrusted ends the session if the replica's certificate is of no authority any
// more.
func (l *peerLink) endUntrusted() {
	e := l.peer.peers.server.enroller
	if err := e.trustsPeer(l.cert, inLife(l.cert, e.clock())); err != nil {
		l.end(&Error{Op: "connect", Addr: l.peer.address, Code: CodeServerCertificate, Err: err})
	}
}

// takes reports whether dials may go to the replica.
func (l *peerLink) takes() bool {
	select {
	case <-l.retired:
		return false
	default:
		return !l.ended()
	}
}

// wait returns when there has to be another session; it reports whether this
// one takes streams until then.
func (l *peerLink) wait(ctx context.Context) bool {
	rotate := time.NewTimer(time.Until(l.rotateAt))
	defer rotate.Stop()
	select {
	case <-rotate.C:
		return true
	case <-l.worn:
		return true
	case <-l.retired:
	case <-l.mux.Done():
	case <-ctx.Done():
	}
	return false
}

// retire gives the replica no more streams; the session ends with the last.
func (l *peerLink) retire() {
	l.retiring.Do(func() {
		close(l.retired)
		l.peer.peers.server.tellServers()
	})
}

// serve reads the control stream until the session has ended.
func (l *peerLink) serve() {
	s := l.peer.peers.server
	stop := context.AfterFunc(l.group.Context(), func() { l.end(s.whyClosed("")) })
	l.out.start(l.end)
	s.Hooks.peerConnected(l.name)
	l.endUntrusted() // the authority may have been replaced since the handshake
	var wg sync.WaitGroup
	wg.Go(l.drain)
	l.end(l.readControl())
	stop()
	wg.Wait()
	l.out.close()
	l.peer.peers.removeLink(l)
	s.Hooks.peerDisconnected(l.name, l.lost())
}

func (l *peerLink) readControl() error {
	for {
		m, err := wire.Read(l.out.control, wire.MaxBody)
		if err != nil {
			return err
		}
		switch m.Kind {
		case wire.MsgDrain:
			l.peer.drained()
			l.retire()
		case wire.MsgRevoked:
			l.peer.peers.server.revoked(m)
		}
	}
}

// drain ends a session that was retired with its last stream.
func (l *peerLink) drain() {
	select {
	case <-l.mux.Done():
		return
	case <-l.retired:
	case <-l.group.Accepting().Done():
		l.retire()
	}
	if l.mux.Settle(l.group.Context(), 1) != nil {
		return
	}
	l.because(errLeft)
	l.out.finish() // the other side hangs up
	t := time.NewTimer(lingerTimeout)
	defer t.Stop()
	select {
	case <-l.mux.Done():
	case <-t.C:
		l.end(errLeft)
	}
}

func (l *peerLink) because(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = cause
	}
}

// end ends the session; the first cause counts.
func (l *peerLink) end(cause error) {
	l.because(cause)
	l.mux.CloseWithError(cause)
}

// lost returns why the session ended; nil if it has not, or in order.
func (l *peerLink) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cause == nil, errors.Is(l.cause, errLeft):
		return nil
	case codeOf(l.cause) == CodeServerCertificate:
		return l.cause
	case errors.Is(l.cause, io.EOF):
		return &Error{Op: "connect", Addr: l.peer.address, Code: CodeLost, Err: errors.New("the peer ended the session")}
	}
	return &Error{Op: "connect", Addr: l.peer.address, Code: CodeLost, Err: l.cause}
}

// open opens a stream for what the message says. It waits no longer than
// suspectAfter for room on a carrier that may be stuck.
func (l *peerLink) open(ctx context.Context, m *wire.Message) (*mux.Stream, error) {
	short, cancel := context.WithTimeout(ctx, suspectAfter)
	defer cancel()
	stream, err := l.mux.Open(short, m.Encode())
	switch {
	case err == nil && l.opened.Add(1) == rotateAfter:
		l.wear()
	case err != nil && short.Err() != nil && ctx.Err() == nil:
		l.markSuspect()
		return nil, &mux.LostError{Err: errors.New("the carrier takes nothing")}
	}
	return stream, err
}
