// Package carrier has the connections that sessions run on: TLS 1.3 on TCP, on a
// WebSocket or on any other connection of a Transport, with large reads and
// writes, and no buffer while it is idle.
package carrier

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
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
	// maxSpoken bounds what a client may send after the handshake before it is
	// admitted: the request of an enrolment, which is the longest message.
	maxSpoken = 32<<10 + 2<<10
)

// Conn is a carrier: TLS 1.3 on a Transport's connection. What is written is sent
// by Flush, in few large pieces, and what is read comes from the kernel in few
// large pieces.
//
// Read returns io.EOF only if the peer ended TLS; if the connection ended without
// that, the error wraps io.ErrUnexpectedEOF. After a write that failed, because of
// a deadline for example, every write returns that error: part of a record may
// have been sent.
type Conn struct {
	tls    *tls.Conn
	below  *gatherer
	closed atomic.Bool

	// drained is true if TLS holds no bytes for the next Read, and no part of a
	// record: the last Read returned less than it had room for.
	drained atomic.Bool
}

var _ net.Conn = (*Conn)(nil)

// Harden changes config to that of a carrier, and returns it: TLS 1.3 is the
// oldest version, and no session is resumed.
func Harden(config *tls.Config) *tls.Config {
	config.MinVersion = tls.VersionTLS13
	config.SessionTicketsDisabled = true
	// Small first records let a browser begin early. Here they cost throughput
	// whenever a stream has paused.
	config.DynamicRecordSizingDisabled = true
	return config
}

// Client makes a carrier of raw, which belongs to the carrier from then on: it is
// closed if the handshake fails. ctx bounds the handshake. config should be
// hardened, except for the outer TLS of a WebSocket. It is kept and not changed, so
// many carriers can share one.
func Client(ctx context.Context, raw net.Conn, config *tls.Config) (*Conn, error) {
	return newConn(raw, config, tls.Client).handshake(ctx, raw, false)
}

// Server is like Client, for the server's end.
func Server(ctx context.Context, raw net.Conn, config *tls.Config) (*Conn, error) {
	return newConn(raw, config, tls.Server).handshake(ctx, raw, true)
}

func (c *Conn) handshake(ctx context.Context, raw net.Conn, server bool) (*Conn, error) {
	if err := c.tls.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, handshakeError(err, server)
	}
	return c, nil
}

// Accept is like Server, for a client without a proven identity. Until Admit
// the carrier may be used within what the place allows.
func Accept(p *admission.Place, raw net.Conn, config *tls.Config) (*Conn, error) {
	c := newConn(raw, config, tls.Server)
	c.setPlace(p)
	p.Begin()
	defer p.End(maxSpoken)
	// A handshake needs a large stack. On a goroutine of its own the stack is freed
	// before the caller waits for the client's first message.
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { c, err = c.handshake(p.Context(), raw, true) })
	wg.Wait()
	return c, err
}

// newConn makes a Conn of the side, tls.Server or tls.Client.
func newConn(raw net.Conn, config *tls.Config, side func(net.Conn, *tls.Config) *tls.Conn) *Conn {
	c := &Conn{below: &gatherer{Conn: raw, writes: socket.NewMutex(), writer: socket.NewWriter(raw), unsent: socket.NewUnsentLimit(raw), source: socket.NewReader(raw)}}
	c.tls = side(c.below, config)
	return c
}

// setPlace counts what comes for the place, and lets no Read read ahead, in this
// connection and all below it. With nil it ends that.
func (c *Conn) setPlace(p *admission.Place) {
	for conn := net.Conn(c); ; {
		switch it := conn.(type) {
		case *Conn:
			it.below.place, it.below.nested, it.below.source.Exact = p, it != c, p != nil
			conn = it.below.Conn
		case *websocket.Conn:
			it.SetExact(p != nil)
			conn = it.Conn
		default:
			return
		}
	}
}

// Admit ends what Accept began: the client has proven its identity.
func (c *Conn) Admit() {
	if p := c.below.place; p != nil {
		p.Prove()
		c.setPlace(nil)
	}
}

// Limit bounds what a client that was not admitted may still send.
func (c *Conn) Limit(n int) {
	if p := c.below.place; p != nil {
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
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "CONNE", "OPTIO", "PRI *"}, string(b[:]))
}

// Read is safe for concurrent use with everything else.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.tls.Read(p)
	c.drained.Store(err == nil && n < len(p))
	return n, c.explain(err)
}

// Wait returns when Read has something or an error. It calls idle once if it
// really waits. A goroutine that waits here for hours keeps less stack than one
// that waits in Read, below crypto/tls. If there is no socket to wait for, or TLS
// may have something, Wait returns at once. Read and Wait must not be called at the
// same time.
func (c *Conn) Wait(idle func()) {
	if c.drained.Load() {
		c.below.source.Wait(idle)
	}
}

// Write encrypts p. It is sent by the next Flush, or when 128 KiB are waiting.
func (c *Conn) Write(p []byte) (int, error) {
	c.below.gathering.Add(1)
	n, err := c.tls.Write(p)
	c.below.gathering.Add(-1)
	return n, c.explain(err)
}

// Flush sends what was written.
func (c *Conn) Flush() error { return c.explain(c.below.flush()) }

// explain returns the error of an operation: after Close any error is
// net.ErrClosed.
func (c *Conn) explain(err error) error {
	if err != nil && c.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// Close sends what was written and the end of TLS. If the peer reads nothing it
// gives up after 100 ms, or at once if a write is blocked. Blocked calls return.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if !c.below.isIdle() {
		c.below.Conn.Close()
		c.tls.Close() // it can't send its alert any more
		return nil
	}
	defer socket.CloseAfter(c.below.Conn, socket.CloseTimeout)()
	c.below.Conn.SetReadDeadline(time.Unix(1, 0))
	c.tls.Close() // the error is only about the alert
	return nil
}

// State returns what the handshake agreed on.
func (c *Conn) State() *tls.ConnectionState {
	s := c.tls.ConnectionState()
	return &s
}

// ReadsAhead marks a connection that reads ahead itself.
func (c *Conn) ReadsAhead() {}

// Writer is for a carrier on top of this one.
func (c *Conn) Writer() *socket.Writer { return c.below.writer }

// Progress is that of [socket.Writer].
func (c *Conn) Progress() (taken, came time.Time) { return c.below.writer.Progress() }

// NetConn returns the Transport's connection, for its options.
func (c *Conn) NetConn() net.Conn { return c.below.Conn }

func (c *Conn) LocalAddr() net.Addr  { return c.tls.LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr { return c.tls.RemoteAddr() }

func (c *Conn) SetDeadline(t time.Time) error      { return c.explain(c.tls.SetDeadline(t)) }
func (c *Conn) SetReadDeadline(t time.Time) error  { return c.explain(c.tls.SetReadDeadline(t)) }
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.explain(c.tls.SetWriteDeadline(t)) }
