package carrier

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

const (
	// HelloTimeout is how long a client may take for its ClientHello.
	HelloTimeout = 5 * time.Second
	// maxSpoken bounds what a client says after the handshake before it is let
	// in: to enrol, say.
	maxSpoken = 32<<10 + 2<<10
)

// carrier is TLS 1.3 on a Transport's connection, shaped for a multiplexer:
// what is written is sent by Flush, in few large pieces, and what is read
// comes from the kernel in few large pieces. It holds no buffer while idle.
//
// Read returns io.EOF only if the peer ended TLS; a connection that ends
// without is an error that wraps io.ErrUnexpectedEOF. A write that failed,
// be it by a deadline, is the last one: its error is returned from then on.
type Conn struct {
	tls    *tls.Conn
	shape  *gatherer
	closed atomic.Bool

	// drained says that TLS keeps nothing for the next Read, and no part of a
	// record: the last one returned less than there was room for.
	drained atomic.Bool
}

var _ net.Conn = (*Conn)(nil)

// Harden changes config, which is returned, to that of a carrier: nothing
// below TLS 1.3 is spoken, and no session is resumed.
func Harden(config *tls.Config) *tls.Config {
	config.MinVersion = tls.VersionTLS13
	config.SessionTicketsDisabled = true
	// Small first records are for pages: here they cost throughput whenever
	// a stream had paused.
	config.DynamicRecordSizingDisabled = true
	return config
}

// Client makes a carrier of raw, which is the carrier's from then on: it is
// closed if the handshake fails. ctx bounds the handshake. config is not
// changed; a carrier keeps it, so those who can share one. Except for the outer
// TLS of a WebSocket it is hardened.
func Client(ctx context.Context, raw net.Conn, config *tls.Config) (*Conn, error) {
	return newConn(raw, config, false).handshake(ctx, raw, false)
}

// Server is Client at the other end, for a client that is known.
func Server(ctx context.Context, raw net.Conn, config *tls.Config) (*Conn, error) {
	return newConn(raw, config, true).handshake(ctx, raw, true)
}

func (c *Conn) handshake(ctx context.Context, raw net.Conn, server bool) (*Conn, error) {
	if err := c.tls.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, handshakeError(err, server)
	}
	return c, nil
}

// Accept is Server for a stranger, which has only its place. The carrier may be
// used within what the place allows, until Admit.
func Accept(p *admission.Place, raw net.Conn, config *tls.Config) (*Conn, error) {
	c := newConn(raw, config, true)
	c.setPlace(p)
	p.Begin()
	defer p.End(maxSpoken)
	// A handshake needs much stack. On a goroutine of its own that is freed before
	// the client's first message is waited for.
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { _, err = c.handshake(p.Context(), raw, true) })
	wg.Wait()
	if err != nil {
		return nil, err
	}
	return c, nil
}

func newConn(raw net.Conn, config *tls.Config, server bool) *Conn {
	c := &Conn{shape: newGatherer(raw)}
	if server {
		c.tls = tls.Server(c.shape, config)
	} else {
		c.tls = tls.Client(c.shape, config)
	}
	return c
}

// setPlace has what comes counted for the place, and nothing read ahead, in all
// that is below too; nil ends that.
func (c *Conn) setPlace(p *admission.Place) {
	for conn := net.Conn(c); ; {
		switch it := conn.(type) {
		case *Conn:
			it.shape.place, it.shape.nested, it.shape.source.Exact = p, it != c, p != nil
			conn = it.shape.Conn
		case *websocket.Conn:
			it.SetExact(p != nil)
			conn = it.Conn
		default:
			return
		}
	}
}

// Admit ends what Accept began: the client has proven who it is.
func (c *Conn) Admit() {
	if p := c.shape.place; p != nil {
		p.Prove()
		c.setPlace(nil)
	}
}

// Limit bounds what a client may still send that was not admitted.
func (c *Conn) Limit(n int) {
	if p := c.shape.place; p != nil {
		p.Limit(n)
	}
}

func handshakeError(err error, server bool) error {
	var header tls.RecordHeaderError
	switch {
	case !server && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
		err = fmt.Errorf("the server closed the connection: it may be overloaded, or refuse new ones; try again later: %w", err)
	case !errors.As(err, &header):
	case bytes.HasPrefix(header.RecordHeader[:], []byte("HTTP/")):
		err = fmt.Errorf("the answer is HTTP: the server may want a ws:// or wss:// URL: %w", err)
	case server && isHTTP(header.RecordHeader):
		err = fmt.Errorf("the client speaks HTTP: %w", err)
	case bytes.HasPrefix(header.RecordHeader[:], []byte("SSH-")):
		err = fmt.Errorf("the peer speaks SSH: %w", err)
	default:
		err = fmt.Errorf("the peer does not speak TLS: %w", err)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// isHTTP reports whether the first bytes are those of a request.
func isHTTP(b [5]byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "CONNE", "OPTIO", "PRI *"} {
		if string(b[:]) == method {
			return true
		}
	}
	return false
}

// Read is safe for concurrent use with everything else.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.tls.Read(p)
	c.drained.Store(err == nil && n < len(p))
	return n, c.explain(err)
}

// Wait returns when Read has something or an error, or at once if that would
// take more than a look at a socket. It needs less stack than Read, and calls
// idle once if it really waits. It is not for use beside Read.
func (c *Conn) Wait(idle func()) {
	if c.drained.Load() {
		c.shape.source.Wait(idle)
	}
}

// Write encrypts p. It is sent by the next Flush, or when 128 KiB are waiting.
func (c *Conn) Write(p []byte) (int, error) {
	c.shape.gathering.Add(1)
	n, err := c.tls.Write(p)
	c.shape.gathering.Add(-1)
	return n, c.explain(err)
}

// Flush sends what was written.
func (c *Conn) Flush() error { return c.explain(c.shape.flush()) }

// explain returns the error of an operation: after Close it is net.ErrClosed,
// however it came about.
func (c *Conn) explain(err error) error {
	if err != nil && c.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// Close sends what was written and the end of TLS, unless the peer takes
// nothing: it gives up after 100 ms, and at once if a write is blocked.
// Blocked calls return.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if !c.shape.idle() {
		c.shape.Conn.Close()
		c.tls.Close() // it can't send its alert any more
		return nil
	}
	defer socket.CloseAfter(c.shape.Conn, socket.CloseTimeout)()
	c.shape.Conn.SetReadDeadline(time.Unix(1, 0))
	c.tls.Close() // its error is about the alert: nobody waits for it
	return nil
}

// State returns what the handshake agreed on.
func (c *Conn) State() *tls.ConnectionState {
	s := c.tls.ConnectionState()
	return &s
}

// ReadsAhead marks a connection that reads ahead itself.
func (c *Conn) ReadsAhead() {}

// NetConn returns the Transport's connection, for its options.
func (c *Conn) NetConn() net.Conn { return c.shape.Conn }

func (c *Conn) LocalAddr() net.Addr  { return c.tls.LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr { return c.tls.RemoteAddr() }

func (c *Conn) SetDeadline(t time.Time) error      { return c.explain(c.tls.SetDeadline(t)) }
func (c *Conn) SetReadDeadline(t time.Time) error  { return c.explain(c.tls.SetReadDeadline(t)) }
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.explain(c.tls.SetWriteDeadline(t)) }
