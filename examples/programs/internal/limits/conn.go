package limits

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
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
	ended   atomic.Bool   // the client sends no more
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
	c.ended.Store(true)
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// spend takes n bytes, at most maxPiece, from all holders. If one of them has too few,
// it calls beforeWait, if that is not nil, and waits.
func (c *limitedConn) spend(n int, beforeWait func() error) (err error) {
	if !c.metered {
		return nil
	}
	for i, h := range c.holders {
		if !h.bytes.takeNow(n) {
			if beforeWait != nil {
				err = beforeWait()
				beforeWait = nil
			}
			if err == nil && !c.wait(h, n) {
				err = net.ErrClosed
			}
			if err != nil {
				c.refund(c.holders[:i], n)
				return err
			}
		}
		if err := c.limiter.spendDay(h, n); err != nil {
			return err
		}
	}
	return nil
}

// wait reports whether the holder had n bytes before the connection was closed.
func (c *limitedConn) wait(h *holder, n int) bool {
	began := time.Now()
	ok := h.bytes.take(c.done, c.client, n)
	c.limiter.countWait(h, time.Since(began))
	return ok
}

// refund gives back what was not written.
func (c *limitedConn) refund(holders []*holder, n int) {
	if !c.metered {
		return
	}
	for _, h := range holders {
		h.bytes.refund(n)
		h.day.refund(time.Now(), n)
	}
}

// Write writes what the client sends.
func (c *limitedConn) Write(p []byte) (int, error) { return c.writePieces(p, c.Conn.Write) }

// Read reads what the target sends.
func (c *limitedConn) Read(b []byte) (int, error) { return paced{c, c.Conn, nil}.Read(b) }

// DeliverTo is WriteTo for a connection to which nobody else writes meanwhile.
func (c *limitedConn) DeliverTo(to net.Conn) (int64, error) {
	conn, ok := c.Conn.(interface{ DeliverTo(net.Conn) (int64, error) })
	switch {
	case !ok:
		return c.WriteTo(to)
	case c.metered:
		to = pacedConn{to, c}
	}
	return conn.DeliverTo(to)
}

// WriteTo writes to w what the target sends.
func (c *limitedConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(paced{c, nil, w}, c.Conn)
}

// ReadFrom writes what it reads from r.
func (c *limitedConn) ReadFrom(r io.Reader) (int64, error) {
	if c.metered {
		p := paced{c, r, nil}
		if r = p; isConn(p.r) {
			r = pacedReader{p}
		}
	}
	return io.Copy(c.Conn, r)
}

func isConn(r io.Reader) bool {
	_, ok := r.(net.Conn)
	return ok
}

// pacedConn is a client's connection for a stream of the tunnel, which may write to the
// socket itself.
type pacedConn struct {
	net.Conn
	c *limitedConn
}

func (p pacedConn) Write(b []byte) (int, error) { return p.c.writePieces(b, p.Conn.Write) }

// Socket returns the connection below.
func (p pacedConn) Socket() net.Conn { return p.Conn }

// TakeNow takes n bytes from all holders, if all have them and nobody waits for them.
func (p pacedConn) TakeNow(n int) bool {
	for i, h := range p.c.holders {
		if !h.bytes.takeNow(n) {
			p.c.refund(p.c.holders[:i], n)
			return false
		}
		if !h.day.allow(time.Now(), n) { // for Write to say it
			h.bytes.refund(n)
			p.c.refund(p.c.holders[:i], n)
			return false
		}
	}
	return true
}

// Refund gives back n bytes.
func (p pacedConn) Refund(n int) { p.c.refund(p.c.holders, n) }

// pacedReader is a client's connection, which a stream of the tunnel may read itself.
type pacedReader struct{ paced }

// Socket returns the connection below.
func (p pacedReader) Socket() net.Conn { return p.r.(net.Conn) }

// Pay takes n bytes from all holders.
func (p pacedReader) Pay(n int) error {
	for ; n > 0; n -= maxPiece {
		if err := p.c.spend(min(n, maxPiece), nil); err != nil {
			return err
		}
	}
	return nil
}

// paced spends what it reads and writes.
type paced struct {
	c *limitedConn
	r io.Reader
	w io.Writer
}

func (p paced) Write(b []byte) (int, error) { return p.c.writePieces(b, p.w.Write) }

func (p paced) Read(b []byte) (int, error) {
	n, err := p.r.Read(b[:min(len(b), maxPiece)])
	if n > 0 {
		if spent := p.c.spend(n, nil); spent != nil {
			return 0, spent
		}
	}
	return n, err
}

const (
	// maxHead is how many bytes are written before a wait. A client that has closed its
	// connection answers by a reset, and then takes nothing from those who wait with it.
	maxHead = 1 << 10
	// maxEnded is maxPiece for a client that sends no more: it may have closed its
	// connection while it waited.
	maxEnded = 4 << 10
)

func (c *limitedConn) pieceSize() int {
	if c.ended.Load() {
		return maxEnded
	}
	return maxPiece
}

func (c *limitedConn) writePieces(p []byte, write func([]byte) (int, error)) (n int, err error) {
	for {
		head := 0
		piece := p[n:min(len(p), n+c.pieceSize())]
		err := c.spend(len(piece), func() (err error) {
			head, err = write(piece[:min(len(piece), maxHead)])
			return err
		})
		if n += head; err != nil {
			return n, err
		}
		if size := c.pieceSize(); len(piece) > size {
			c.refund(c.holders, len(piece)-size)
			piece = piece[:size]
		}
		if head < len(piece) {
			m, err := write(piece[head:])
			if n += m; err != nil {
				c.refund(c.holders, len(piece)-head-m)
				return n, err
			}
		}
		if n >= len(p) {
			return n, nil
		}
	}
}
