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

// withBuffered returns conn, or if br has read bytes of the target already a
// conn that yields these first. br is put back.
func withBuffered(conn net.Conn, br *bufio.Reader) net.Conn {
	defer putReader(br)
	n := br.Buffered()
	if n == 0 {
		return conn
	}
	rest, _ := br.Peek(n)
	return &bufferedConn{Conn: conn, rest: bytes.Clone(rest)}
}

// bufferedConn yields rest before what comes from Conn.
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

// WriteTo lets io.Copy splice once rest is written.
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

// CloseWrite passes on half-close. It fails if Conn has none.
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

// NetConn returns the connection to the proxy. Bytes that were not yet read
// are lost to it.
func (c *bufferedConn) NetConn() net.Conn { return c.Conn }

// KeepTarget makes the connections of Dialer remember what they were dialed
// for, which [Target] tells.
//
// A connection through a proxy has the proxy's RemoteAddr, and is the raw one
// wherever it can be, so that it can be spliced: it has no place for the
// target. The ones of KeepTarget are wrapped. They have CloseWrite, io.Copy
// still splices, and NetConn returns the raw one.
type KeepTarget struct {
	// Dialer makes the connections. If nil, Direct.
	Dialer Dialer
}

var _ Dialer = KeepTarget{}

// DialContext dials address and keeps it.
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

// Target returns the host:port that conn was dialed for, as it was given to
// the outermost [KeepTarget]. It looks through connections that have NetConn,
// such as a *tls.Conn. ok is false if no KeepTarget made it.
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
