package carrier

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// gatherer is the connection that a carrier's TLS writes to and reads from.
//
// crypto/tls writes one record of at most 16 KiB at a time, and each would be a
// system call, and often a packet that is not full. The gatherer keeps the records
// of a Write of the carrier in a buffer, and sends them together when the carrier
// is flushed or the buffer is full. The multiplexer flushes after its last
// write. In the other direction crypto/tls asks for little more than a
// record, and the [socket.Reader] reads as much as the kernel has.
type gatherer struct {
	net.Conn // the Transport's

	// gathering counts the calls of Conn.Write that are under way. TLS also writes
	// outside of them (handshakes, alerts): that is sent at once.
	gathering atomic.Int32

	// writes is held while a write blocks. Close does not wait for it.
	writes   socket.Mutex
	out      *[socket.BufferSize]byte // borrowed from the pool while something waits; nil otherwise
	outLen   int
	writer   *socket.Writer
	writeErr error // of the first write that failed
	unsent   socket.UnsentLimit

	// place is the place among the clients without a proven identity, until the
	// client is admitted; nil otherwise. If another TLS runs on top of this one,
	// nested is true, and that one counts what comes.
	place  *admission.Place
	nested bool

	// The fields below are the reader's; TLS has one at a time.
	source  socket.Reader
	records admission.Records
}

// errCut wraps io.ErrUnexpectedEOF and must not be that itself: at the end of a
// record crypto/tls turns it into io.EOF, and then a cut looks like an end.
var errCut = fmt.Errorf("the connection was cut, or its program ended: %w", io.ErrUnexpectedEOF)

// errClosedBelow is for a WebSocket that was closed in order before the TLS on it was.
var errClosedBelow = fmt.Errorf("the other end, or a gateway, closed the WebSocket with the code 1000 or without one: %w", io.ErrUnexpectedEOF)

func (g *gatherer) Read(p []byte) (int, error) {
	n, err := g.records.Read(&g.source, p, g.place, g.nested)
	if errors.Is(err, io.EOF) || err == io.ErrUnexpectedEOF {
		if _, ok := g.Conn.(*websocket.Conn); ok && err == io.EOF {
			return n, errClosedBelow
		}
		err = errCut
	}
	return n, err
}

// Write takes one record of TLS.
func (g *gatherer) Write(p []byte) (int, error) {
	g.writes.Lock()
	defer g.writes.Unlock()
	if g.outLen+len(p) > websocket.MaxPayload {
		g.flushLocked()
	}
	if g.writeErr != nil {
		return 0, g.writeErr
	}
	if len(p) > websocket.MaxPayload {
		return g.sendLocked(p)
	}
	if g.out == nil {
		g.out = socket.GetBuffer()
	}
	g.outLen += copy(g.out[g.outLen:], p)
	if g.gathering.Load() == 0 {
		g.flushLocked()
	}
	if g.writeErr != nil {
		return 0, g.writeErr
	}
	return len(p), nil
}

func (g *gatherer) flush() error {
	g.writes.Lock()
	defer g.writes.Unlock()
	g.flushLocked()
	return g.writeErr
}

func (g *gatherer) flushLocked() {
	if g.out == nil {
		return
	}
	if g.writeErr == nil {
		g.sendLocked(g.out[:g.outLen])
	}
	socket.PutBuffer(g.out)
	g.out, g.outLen = nil, 0
}

// sendLocked keeps the first error: after it nobody knows how much the peer has got.
func (g *gatherer) sendLocked(p []byte) (n int, err error) {
	if g.place != nil {
		g.place.Wait()
		g.place.Reach(admission.Greeting) // what was sent is an answer
	}
	n, err = g.writer.Write(p)
	g.unsent.Wrote(n)
	if err != nil {
		g.writeErr = err
	}
	return n, err
}

// SetWriteDeadline says how long the network may take nothing.
func (g *gatherer) SetWriteDeadline(t time.Time) error { return g.writer.SetWriteDeadline(t) }

// SetDeadline sets both.
func (g *gatherer) SetDeadline(t time.Time) error {
	return errors.Join(g.SetReadDeadline(t), g.SetWriteDeadline(t))
}

// isIdle reports whether no write is under way.
func (g *gatherer) isIdle() bool {
	if !g.writes.TryLock() {
		return false
	}
	g.writes.Unlock()
	return true
}
