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
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), maxPiece)])
	if n > 0 {
		if spent := c.spend(n); spent != nil {
			return 0, spent
		}
	}
	return n, err
}

// WriteTo writes to w what the target sends.
func (c *limitedConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(pacedWriter{w, c}, c.Conn)
}

// pacedWriter spends before it writes.
type pacedWriter struct {
	io.Writer
	c *limitedConn
}

func (w pacedWriter) Write(p []byte) (int, error) { return writePieces(p, w.c.spend, w.Writer.Write) }

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
