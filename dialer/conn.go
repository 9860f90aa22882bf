package dialer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// withBuffered returns conn. If br has read bytes of the target already, it returns a
// conn that returns these first. It puts br back.
func withBuffered(conn net.Conn, br *bufio.Reader) net.Conn {
	defer putReader(br)
	n := br.Buffered()
	if n == 0 {
		return conn
	}
	rest, _ := br.Peek(n)
	return &bufferedConn{Conn: conn, rest: bytes.Clone(rest)}
}

// bufferedConn returns rest before the bytes of Conn.
type bufferedConn struct {
	net.Conn

	mu   sync.Mutex // guards rest
	rest []byte
}

var _ net.Conn = (*bufferedConn)(nil)

// takeBuffered moves up to len(p) bytes of rest into p.
func (c *bufferedConn) takeBuffered(p []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n
}

func (c *bufferedConn) Read(p []byte) (int, error) {
	if n := c.takeBuffered(p); n > 0 {
		return n, nil
	}
	return c.Conn.Read(p)
}

// WriteTo writes rest, and then lets io.Copy splice.
func (c *bufferedConn) WriteTo(w io.Writer) (int64, error) {
	c.mu.Lock()
	rest := c.rest
	c.rest = nil
	c.mu.Unlock()
	n := 0
	if len(rest) > 0 {
		var err error
		if n, err = w.Write(rest); err != nil {
			return int64(n), err
		}
	}
	m, err := io.Copy(w, c.Conn)
	return int64(n) + m, err
}

// ReadFrom lets io.Copy splice into Conn.
func (c *bufferedConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(c.Conn, r)
}

// CloseWrite calls Conn's CloseWrite. Without one it returns errors.ErrUnsupported.
func (c *bufferedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return fmt.Errorf("dialer: half-close of %T: %w", c.Conn, errors.ErrUnsupported)
}

func (c *bufferedConn) Close() error {
	c.mu.Lock()
	c.rest = nil
	c.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the connection to the proxy, without the bytes of rest.
func (c *bufferedConn) NetConn() net.Conn { return c.Conn }

// KeepTarget is a Dialer whose connections remember the address that they were dialed
// for. [Target] returns it.
//
// Without it, a connection through a proxy has the proxy's RemoteAddr and is the raw
// connection if possible, so that it can be spliced. KeepTarget wraps connections.
// They have CloseWrite, io.Copy still splices, and NetConn returns the raw one.
type KeepTarget struct {
	// Dialer makes the connections. If nil, it is Direct{}.
	Dialer Dialer
}

var _ Dialer = KeepTarget{}

// DialContext dials address. The error is Dialer's.
func (d KeepTarget) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := forwardOrDirect(d.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &targetConn{bufferedConn{Conn: conn}, address}, nil
}

type targetConn struct {
	bufferedConn
	target string
}

func (c *targetConn) dialTarget() string { return c.target }

// Target returns the host:port that conn was dialed for, as it was passed to the
// outermost [KeepTarget]. It also looks into connections that have a method NetConn,
// such as a *tls.Conn. ok is false if no KeepTarget made the connection.
func Target(conn net.Conn) (address string, ok bool) {
	for {
		switch c := conn.(type) {
		case interface{ dialTarget() string }:
			return c.dialTarget(), true
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return "", false
		}
	}
}
