package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
)

const (
	// helloTimeout is how long a client may take for its ClientHello.
	helloTimeout = 5 * time.Second
	// maxSpoken bounds what a client says after the handshake before it is let
	// in: to enrol, say.
	maxSpoken = maxEnroll + 2<<10
)

// carrier is TLS 1.3 on a Transport's connection, shaped for a multiplexer:
// what is written is sent by Flush, in few large pieces, and what is read
// comes from the kernel in few large pieces. It holds no buffer while idle.
//
// Read returns io.EOF only if the peer ended TLS; a connection that ends
// without is an error that wraps io.ErrUnexpectedEOF. A write that failed,
// be it by a deadline, is the last one: its error is returned from then on.
type carrier struct {
	tls    *tls.Conn
	shape  *shape
	closed atomic.Bool

	// drained says that TLS keeps nothing for the next Read, and no part of a
	// record: the last one returned less than there was room for.
	drained atomic.Bool
}

var _ net.Conn = (*carrier)(nil)

// hardened changes config, which is returned, to that of a carrier: nothing
// below TLS 1.3 is spoken, and no session is resumed.
func hardened(config *tls.Config) *tls.Config {
	config.MinVersion = tls.VersionTLS13
	config.SessionTicketsDisabled = true
	// Small first records are for pages: here they cost throughput whenever
	// a stream had paused.
	config.DynamicRecordSizingDisabled = true
	return config
}

// secure makes a carrier of raw, which is the carrier's from then on: it is
// closed if the handshake fails. ctx bounds the handshake. config is not
// changed; a carrier keeps it, so those who can share one. But for the outer
// TLS of a WebSocket it is hardened.
func secure(ctx context.Context, raw net.Conn, config *tls.Config, server bool) (*carrier, error) {
	c := newCarrier(raw, config, server)
	if err := c.tls.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, handshakeError(err, server)
	}
	return c, nil
}

// secureStranger is secure at a server, for a client that has its place only.
// The carrier may be used within what the place allows, until letIn. The handshake
// has a stack of its own, which is gone when the client's first message is waited
// for.
func secureStranger(p *admission.Place, raw net.Conn, config *tls.Config) (*carrier, error) {
	c := newCarrier(raw, config, true)
	c.guard(p)
	p.Begin()
	var err error
	apart(func() { err = c.tls.HandshakeContext(p.Context()) })
	p.End(maxSpoken)
	if err != nil {
		raw.Close()
		return nil, handshakeError(err, true)
	}
	return c, nil
}

func newCarrier(raw net.Conn, config *tls.Config, server bool) *carrier {
	c := &carrier{shape: newShape(raw)}
	if server {
		c.tls = tls.Server(c.shape, config)
	} else {
		c.tls = tls.Client(c.shape, config)
	}
	return c
}

// guard has what comes counted for the place, and nothing read ahead, in all
// that is below too; nil ends that.
func (c *carrier) guard(p *admission.Place) {
	for conn := net.Conn(c); ; {
		switch it := conn.(type) {
		case *carrier:
			it.shape.place, it.shape.nested, it.shape.source.strict = p, it != c, p != nil
			conn = it.shape.Conn
		case *wsConn:
			it.source.strict = p != nil
			conn = it.Conn
		default:
			return
		}
	}
}

// letIn ends what secureStranger began: the client has proven who it is.
func (c *carrier) letIn() {
	if p := c.shape.place; p != nil {
		p.Prove()
		c.guard(nil)
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
func (c *carrier) Read(p []byte) (int, error) {
	n, err := c.tls.Read(p)
	c.drained.Store(err == nil && n < len(p))
	return n, c.explain(err)
}

// Wait returns when Read has something or an error, or at once if that would
// take more than a look at a socket. It needs less stack than Read, and calls
// idle once if it really waits. It is not for use beside Read.
func (c *carrier) Wait(idle func()) {
	if c.drained.Load() {
		c.shape.source.wait(idle)
	}
}

// Write encrypts p. It is sent by the next Flush, or when 128 KiB are waiting.
func (c *carrier) Write(p []byte) (int, error) {
	c.shape.gathering.Add(1)
	n, err := c.tls.Write(p)
	c.shape.gathering.Add(-1)
	return n, c.explain(err)
}

// Flush sends what was written.
func (c *carrier) Flush() error { return c.explain(c.shape.flush()) }

// explain returns the error of an operation: after Close it is net.ErrClosed,
// however it came about.
func (c *carrier) explain(err error) error {
	if err != nil && c.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// Close sends what was written and the end of TLS, unless the peer takes
// nothing: it gives up after 100 ms, and at once if a write is blocked.
// Blocked calls return.
func (c *carrier) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if !c.shape.idle() {
		c.shape.Conn.Close()
		c.tls.Close() // it can't send its alert any more
		return nil
	}
	defer cutAfter(c.shape.Conn, closeWait)()
	c.shape.Conn.SetReadDeadline(time.Unix(1, 0))
	c.tls.Close() // its error is about the alert: nobody waits for it
	return nil
}

// state returns what the handshake agreed on.
func (c *carrier) state() *tls.ConnectionState {
	s := c.tls.ConnectionState()
	return &s
}

// NetConn returns the Transport's connection, for its options.
func (c *carrier) NetConn() net.Conn { return c.shape.Conn }

func (c *carrier) LocalAddr() net.Addr  { return c.tls.LocalAddr() }
func (c *carrier) RemoteAddr() net.Addr { return c.tls.RemoteAddr() }

func (c *carrier) SetDeadline(t time.Time) error      { return c.explain(c.tls.SetDeadline(t)) }
func (c *carrier) SetReadDeadline(t time.Time) error  { return c.explain(c.tls.SetReadDeadline(t)) }
func (c *carrier) SetWriteDeadline(t time.Time) error { return c.explain(c.tls.SetWriteDeadline(t)) }
