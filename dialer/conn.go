package dialer

import (
	"bufio"
	"bytes"
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

// take moves up to len(p) bytes of rest into p.
func (c *bufferedConn) take(p []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n
}

func (c *bufferedConn) Read(p []byte) (int, error) {
	if n := c.take(p); n > 0 {
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
