package limits

import (
	"errors"
	"io"
	"net"
	"sync"
)

// limitedConn is the connection to a target. It counts for its holders until it is
// closed, and waits when one of them has used up its bytes.
type limitedConn struct {
	net.Conn
	limiter *Limiter
	client  string // the name, or the source: who has a share
	holders []*holder
	metered bool          // a limit of bytes was for one of them when it began
	done    chan struct{} // closed by Close and Reset
	once    sync.Once
}

// NetConn returns the connection below.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

func (c *limitedConn) end() {
	c.once.Do(func() {
		close(c.done)
		c.limiter.leave(c.holders)
	})
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// Reset closes the connection so that the target sees that it was no regular end.
func (c *limitedConn) Reset(code uint32) error {
	c.end()
	switch conn := c.Conn.(type) {
	case interface{ Reset(code uint32) error }:
		return conn.Reset(code)
	case *net.TCPConn:
		conn.SetLinger(0)
	}
	return c.Conn.Close()
}

// CloseWrite ends what is written.
func (c *limitedConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// spend waits until all holders may have n bytes more, at most maxPiece.
func (c *limitedConn) spend(n int) error {
	if !c.metered {
		return nil
	}
	for _, h := range c.holders {
		if waited := h.bytes.take(c.done, c.client, n); waited > 0 {
			c.limiter.countWait(h, waited)
		}
		if err := c.limiter.spendDay(h, n); err != nil {
			return err
		}
	}
	return nil
}

// Write writes what the client sends.
func (c *limitedConn) Write(p []byte) (n int, err error) {
	return writePieces(p, c.spend, c.Conn.Write)
}

// Read reads what the target sends.
func (c *limitedConn) Read(b []byte) (int, error) { return paced{c, c.Conn, nil}.Read(b) }

// DeliverTo is WriteTo for a connection to which nobody else writes meanwhile.
func (c *limitedConn) DeliverTo(to net.Conn) (int64, error) {
	if conn, ok := c.Conn.(interface{ DeliverTo(net.Conn) (int64, error) }); ok && !c.metered {
		return conn.DeliverTo(to)
	}
	return io.Copy(paced{c, nil, to}, c.Conn)
}

// ReadFrom writes what it reads from r.
func (c *limitedConn) ReadFrom(r io.Reader) (int64, error) {
	if c.metered {
		r = paced{c, r, nil}
	}
	return io.Copy(c.Conn, r)
}

// paced spends what it reads and writes.
type paced struct {
	c *limitedConn
	r io.Reader
	w io.Writer
}

func (p paced) Write(b []byte) (int, error) { return writePieces(b, p.c.spend, p.w.Write) }

func (p paced) Read(b []byte) (int, error) {
	n, err := p.r.Read(b[:min(len(b), maxPiece)])
	if n > 0 {
		if spent := p.c.spend(n); spent != nil {
			return 0, spent
		}
	}
	return n, err
}

func writePieces(p []byte, spend func(int) error, write func([]byte) (int, error)) (n int, err error) {
	for {
		piece := p[n:min(len(p), n+maxPiece)]
		if err := spend(len(piece)); err != nil {
			return n, err
		}
		m, err := write(piece)
		if n += m; err != nil || n >= len(p) {
			return n, err
		}
	}
}
