package linktest

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

// conn is a connection over the link.
type conn struct {
	link           *Link
	client, target net.Conn
	up, down       *connDirection

	once sync.Once
	done chan struct{} // closed by resetBoth
}

func newConn(l *Link, client, target net.Conn) *conn {
	c := &conn{link: l, client: client, target: target, done: make(chan struct{})}
	c.up, c.down = newConnDirection(c, &l.up, client, target), newConnDirection(c, &l.down, target, client)
	c.up.reverse, c.down.reverse = c.down, c.up
	return c
}

// relayBoth returns when both directions have ended or were reset.
func (c *conn) relayBoth() {
	var wg sync.WaitGroup
	for _, l := range []*connDirection{c.up, c.down} {
		wg.Go(l.readLoop)
		wg.Go(l.writeLoop)
	}
	wg.Wait()
	c.client.Close()
	c.target.Close()
	c.link.removeConn(c)
}

// resetBoth resets both sides at once.
func (c *conn) resetBoth() {
	c.once.Do(func() { close(c.done) })
	abort.Reset(c.client, 0)
	abort.Reset(c.target, 0)
}

// resetSide resets one side. Then nothing passes any more.
func (c *conn) resetSide(lost Side) {
	c.up.silent.Store(true)
	c.down.silent.Store(true)
	if lost == Client {
		abort.Reset(c.client, 0)
	} else {
		abort.Reset(c.target, 0)
	}
}

// connDirection is one direction of a connection: readLoop puts what comes into the
// queue, writeLoop takes it out when it is due.
type connDirection struct {
	conn     *conn
	shared   *linkDirection
	src, dst net.Conn
	reverse  *connDirection // the other direction

	silent atomic.Bool // nothing arrives any more

	queueGrew, queueShrank chan struct{} // one each says that the queue has grown, or shrunk

	mu     sync.Mutex // guards the fields below
	queue  []piece
	queued int // bytes
}

// piece is what arrives at one time: bytes, or the end of them.
type piece struct {
	bytes []byte
	end   error // io.EOF, or what stands for a reset
	at    time.Time
}

func newConnDirection(c *conn, w *linkDirection, src, dst net.Conn) *connDirection {
	return &connDirection{conn: c, shared: w, src: src, dst: dst, queueGrew: make(chan struct{}, 1), queueShrank: make(chan struct{}, 1)}
}

func (l *connDirection) currentConfig() (Direction, <-chan struct{}) {
	c, changed := l.conn.link.currentConfig()
	return *l.shared.config(&c), changed
}

// readLoop reads until src's end, which it queues too.
func (l *connDirection) readLoop() {
	buf := make([]byte, maxChunk)
	for {
		d, ok := l.awaitRoom()
		if !ok {
			return
		}
		n, err := l.src.Read(buf[:d.chunkSize()])
		d, _ = l.currentConfig() // which may have changed in the meantime
		if n > 0 {
			l.push(piece{bytes: append([]byte(nil), buf[:n]...), at: l.shared.passTime(d, n).Add(d.Delay)})
		}
		if err != nil {
			l.push(piece{end: err, at: l.shared.passTime(d, 0).Add(d.Delay)})
			return
		}
	}
}

// passTime returns when n bytes that came now will have passed at d's rate.
func (w *linkDirection) passTime(d Direction, n int) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if d.Rate <= 0 {
		return now
	}
	if w.busyUntil.Before(now) {
		w.busyUntil = now
	}
	w.busyUntil = w.busyUntil.Add(d.transmitTime(n))
	return w.busyUntil
}

// awaitRoom returns false when the connection was reset.
func (l *connDirection) awaitRoom() (Direction, bool) {
	for {
		d, changed := l.currentConfig()
		l.mu.Lock()
		full := l.queued >= d.capacity()
		l.mu.Unlock()
		if !full {
			return d, true
		}
		select {
		case <-l.queueShrank:
		case <-changed:
		case <-l.conn.done:
			return d, false
		}
	}
}

func (l *connDirection) push(p piece) {
	l.mu.Lock()
	l.queue = append(l.queue, p)
	l.queued += len(p.bytes)
	l.mu.Unlock()
	wakeUp(l.queueGrew)
}

func (l *connDirection) pop() (piece, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return piece{}, false
	}
	p := l.queue[0]
	l.queue[0] = piece{}
	l.queue = l.queue[1:]
	return p, true
}

// releaseBytes makes room for what was delivered.
func (l *connDirection) releaseBytes(n int) {
	l.mu.Lock()
	l.queued -= n
	l.mu.Unlock()
	wakeUp(l.queueShrank)
}

func wakeUp(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// writeLoop writes what was queued until the end of it.
func (l *connDirection) writeLoop() {
	for sent := int64(0); ; {
		p, ok := l.pop()
		if !ok {
			select {
			case <-l.queueGrew:
				continue
			case <-l.conn.done:
				return
			}
		}
		if !l.awaitArrival(p.at) {
			return
		}
		if p.end != nil {
			l.passEnd(p.end)
			return
		}
		if !l.silent.Load() && !l.writePiece(p.bytes, &sent) {
			return
		}
		l.releaseBytes(len(p.bytes))
	}
}

// awaitArrival returns when a piece arrives, or is lost: the lane is silent then. It
// returns false when the connection was reset.
func (l *connDirection) awaitArrival(at time.Time) bool {
	for {
		d, changed := l.currentConfig()
		if d.Drop {
			l.silent.Store(true)
		}
		if l.silent.Load() {
			return true
		}
		left := time.Until(at)
		if left <= 0 && !d.Stall {
			return true
		}
		if !l.waitForChange(left, d.Stall, changed) {
			return false
		}
	}
}

// waitForChange waits for changed, and no longer than left unless stalled. It returns
// false when the connection was reset.
func (l *connDirection) waitForChange(left time.Duration, stalled bool, changed <-chan struct{}) bool {
	var arrives <-chan time.Time
	if !stalled {
		timer := time.NewTimer(left)
		defer timer.Stop()
		arrives = timer.C
	}
	select {
	case <-arrives:
	case <-changed:
	case <-l.conn.done:
		return false
	}
	return true
}

// writePiece returns false when the connection was reset.
func (l *connDirection) writePiece(b []byte, sent *int64) bool {
	d, _ := l.currentConfig()
	cut := d.CutAfter > 0 && *sent+int64(len(b)) >= d.CutAfter
	if cut {
		b = b[:max(0, d.CutAfter-*sent)]
	}
	l.shared.delivered.Add(int64(len(b))) // before dst can tell anyone
	n, err := l.dst.Write(b)
	l.shared.delivered.Add(int64(n - len(b)))
	*sent += int64(n)
	switch {
	case cut:
		l.conn.resetBoth()
	case err != nil && l.reverse.isSilent():
		l.silent.Store(true) // and src doesn't hear of it
		return true
	case err != nil:
		l.conn.resetBoth()
	default:
		return true
	}
	return false
}

// isSilent reports whether nothing arrives in this direction.
func (l *connDirection) isSilent() bool {
	d, _ := l.currentConfig()
	return d.Drop || l.silent.Load()
}

// passEnd tells dst that src has ended, or was reset.
func (l *connDirection) passEnd(end error) {
	switch {
	case l.silent.Load():
	case end != io.EOF:
		l.conn.resetBoth()
	default:
		cw, ok := l.dst.(interface{ CloseWrite() error })
		if !ok || errors.Is(cw.CloseWrite(), errors.ErrUnsupported) {
			l.dst.Close()
		}
	}
}
