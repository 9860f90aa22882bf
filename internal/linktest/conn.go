package linktest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

// conn is a connection over a link.
type conn struct {
	link  *Link
	sides [2]net.Conn // by Side
	ways  [2]*connWay // up and down
	reset bool        // on both sides
}

// connWay is one direction of a connection. The link's mu guards the fields below cond.
type connWay struct {
	*conn
	at       int // of its Direction
	src, dst net.Conn
	cond     sync.Cond // a field has changed, or the link's config
	queue    []piece
	queued   int  // bytes that were read and not written yet
	silent   bool // what comes is dropped, for good
}

// piece is some bytes, or the end of the direction, and when they arrive.
type piece struct {
	bytes []byte
	end   error // of Read, io.EOF for an end in order
	at    time.Time
}

func newConn(l *Link, client, target net.Conn) *conn {
	c := &conn{link: l, sides: [2]net.Conn{Client: client, Target: target}}
	c.ways = [2]*connWay{{conn: c, at: 0, src: client, dst: target}, {conn: c, at: 1, src: target, dst: client}}
	for _, w := range c.ways {
		w.cond.L = &l.mu
	}
	return c
}

func (c *conn) wakeLocked() {
	for _, w := range c.ways {
		w.cond.Broadcast()
	}
}

// relayBoth returns when both directions have ended.
func (c *conn) relayBoth() {
	var wg sync.WaitGroup
	for _, w := range c.ways {
		wg.Go(w.readLoop)
		wg.Go(w.writeLoop)
	}
	wg.Wait()
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	for _, side := range c.sides {
		if c.reset { // resetBoth may not have come to it yet
			abort.Reset(side, 0)
		}
		side.Close()
	}
	delete(c.link.conns, c)
}

func (c *conn) resetBoth() {
	c.link.mu.Lock()
	c.reset = true
	c.wakeLocked()
	c.link.mu.Unlock()
	for _, side := range c.sides {
		abort.Reset(side, 0)
	}
}

// resetSide resets one side; the other one hears nothing any more.
func (c *conn) resetSide(lost Side) {
	c.link.mu.Lock()
	for _, w := range c.ways {
		w.silent = true
	}
	c.link.mu.Unlock()
	abort.Reset(c.sides[lost], 0)
}

func (w *connWay) direction() *Direction { return w.link.config.direction(w.at) }

// readLoop takes what comes, for as long as there is room.
func (w *connWay) readLoop() {
	buf := make([]byte, maxChunk)
	for {
		n, ok := w.awaitRoom()
		if !ok {
			return
		}
		n, err := w.src.Read(buf[:n])
		if n > 0 {
			w.push(piece{bytes: bytes.Clone(buf[:n])})
		}
		if err != nil {
			w.push(piece{end: err})
			return
		}
	}
}

// awaitRoom returns how many bytes may be read; false if the connection was reset.
func (w *connWay) awaitRoom() (n int, ok bool) {
	w.link.mu.Lock()
	defer w.link.mu.Unlock()
	for !w.reset {
		if d := w.direction(); w.queued < d.capacity() {
			return d.chunkSize(), true
		}
		w.cond.Wait()
	}
	return 0, false
}

// push sends a piece on its way. All connections share the rate.
func (w *connWay) push(p piece) {
	w.link.mu.Lock()
	defer w.link.mu.Unlock()
	p.at = time.Now()
	d, busyUntil := w.direction(), &w.link.busyUntil[w.at]
	if d.Rate > 0 {
		if busyUntil.Before(p.at) {
			*busyUntil = p.at
		}
		*busyUntil = busyUntil.Add(time.Duration(float64(len(p.bytes)) / float64(d.Rate) * float64(time.Second)))
		p.at = *busyUntil
	}
	p.at = p.at.Add(d.Delay)
	w.queue = append(w.queue, p)
	w.queued += len(p.bytes)
	w.cond.Broadcast()
}

// pop returns the next piece once it arrives, or is to be dropped; false if the
// connection was reset.
func (w *connWay) pop() (p piece, dropped, ok bool) {
	w.link.mu.Lock()
	defer w.link.mu.Unlock()
	for !w.reset {
		d := w.direction()
		if len(w.queue) == 0 || d.Stall && !d.Drop && !w.silent {
			w.cond.Wait()
			continue
		}
		w.silent = w.silent || d.Drop
		left := time.Until(w.queue[0].at)
		if w.silent || left <= 0 {
			p, w.queue[0] = w.queue[0], piece{}
			w.queue = w.queue[1:]
			return p, w.silent, true
		}
		timer := time.AfterFunc(left, func() {
			w.link.mu.Lock()
			defer w.link.mu.Unlock()
			w.cond.Broadcast()
		})
		w.cond.Wait()
		timer.Stop()
	}
	return piece{}, false, false
}

// writeLoop passes on what arrives.
func (w *connWay) writeLoop() {
	sent := int64(0)
	for {
		p, dropped, ok := w.pop()
		switch {
		case !ok, p.end != nil && dropped:
			return
		case p.end != nil:
			w.passEnd(p.end)
			return
		case !dropped && !w.writePiece(p.bytes, &sent):
			return
		}
		w.link.mu.Lock()
		w.queued -= len(p.bytes)
		w.cond.Broadcast()
		w.link.mu.Unlock()
	}
}

// writePiece reports whether the direction goes on. sent is what was written before.
func (w *connWay) writePiece(b []byte, sent *int64) bool {
	w.link.mu.Lock()
	most := w.direction().CutAfter
	w.link.mu.Unlock()
	cut := most > 0 && *sent+int64(len(b)) >= most
	if cut {
		b = b[:max(0, most-*sent)]
	}
	n, err := w.dst.Write(b)
	*sent += int64(n)
	if cut || err != nil && !w.isOneSided() {
		w.resetBoth()
		return false
	}
	return true
}

// isOneSided reports whether the reset of dst, which a write has found, is not passed on.
// This direction is silent then, too.
func (w *connWay) isOneSided() bool {
	w.link.mu.Lock()
	defer w.link.mu.Unlock()
	back := w.ways[1-w.at]
	w.silent = w.silent || back.silent || back.direction().Drop
	return w.silent
}

// passEnd passes on an end in order, or a reset.
func (w *connWay) passEnd(end error) {
	if end != io.EOF {
		w.resetBoth()
		return
	}
	cw, ok := w.dst.(interface{ CloseWrite() error })
	if !ok || errors.Is(cw.CloseWrite(), errors.ErrUnsupported) {
		w.dst.Close()
	}
}
