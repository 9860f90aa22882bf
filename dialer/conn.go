package dialer

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync"

	"github.com/causewayproject/causeway/internal/relay"
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
	n, err := bytes.NewReader(rest).WriteTo(w)
	if err != nil {
		return n, err
	}
	m, err := io.Copy(w, c.Conn)
	return n + m, err
}

// ReadFrom lets io.Copy splice into Conn.
func (c *bufferedConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(c.Conn, r)
}

// CloseWrite calls Conn's CloseWrite. Without one it returns errors.ErrUnsupported.
func (c *bufferedConn) CloseWrite() error { return relay.CloseWrite(c.Conn) }

func (c *bufferedConn) Close() error {
	c.mu.Lock()
	c.rest = nil
	c.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the connection to the proxy, without the bytes of rest.
func (c *bufferedConn) NetConn() net.Conn { return c.Conn }
