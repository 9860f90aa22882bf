package linktest

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lane is one direction of a connection: receive puts what comes into the
// queue, deliver takes it out when its time has come.
type lane struct {
	conn     *conn
	way      *way
	src, dst net.Conn
	back     *lane // the other direction

	silent atomic.Bool // nothing arrives any more

	come, gone chan struct{} // one each says that the queue has grown, or shrunk

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

func newLane(c *conn, w *way, src, dst net.Conn) *lane {
	return &lane{conn: c, way: w, src: src, dst: dst, come: make(chan struct{}, 1), gone: make(chan struct{}, 1)}
}

func (l *lane) direction() (Direction, <-chan struct{}) {
	c, changed := l.conn.link.current()
	return *l.way.get(&c), changed
}

// receive reads until src's end, which it queues too.
func (l *lane) receive() {
	buf := make([]byte, maxChunk)
	for {
		d, ok := l.awaitRoom()
		if !ok {
			return
		}
		n, err := l.src.Read(buf[:d.chunk()])
		d, _ = l.direction() // which may have changed in the meantime
		if n > 0 {
			l.push(piece{bytes: append([]byte(nil), buf[:n]...), at: l.way.passed(d, n).Add(d.Delay)})
		}
		if err != nil {
			l.push(piece{end: err, at: l.way.passed(d, 0).Add(d.Delay)})
			return
		}
	}
}

// passed returns when n bytes that came now will have passed at d's rate.
func (w *way) passed(d Direction, n int) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if d.Rate <= 0 {
		return now
	}
	if w.free.Before(now) {
		w.free = now
	}
	w.free = w.free.Add(d.takes(n))
	return w.free
}

// awaitRoom returns false when the connection was reset.
func (l *lane) awaitRoom() (Direction, bool) {
	for {
		d, changed := l.direction()
		l.mu.Lock()
		full := l.queued >= d.room()
		l.mu.Unlock()
		if !full {
			return d, true
		}
		select {
		case <-l.gone:
		case <-changed:
		case <-l.conn.done:
			return d, false
		}
	}
}

func (l *lane) push(p piece) {
	l.mu.Lock()
	l.queue = append(l.queue, p)
	l.queued += len(p.bytes)
	l.mu.Unlock()
	notify(l.come)
}

func (l *lane) pop() (piece, bool) {
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

// free makes room for what was delivered.
func (l *lane) free(n int) {
	l.mu.Lock()
	l.queued -= n
	l.mu.Unlock()
	notify(l.gone)
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deliver writes what was queued until the end of it.
func (l *lane) deliver() {
	for sent := int64(0); ; {
		p, ok := l.pop()
		if !ok {
			select {
			case <-l.come:
				continue
			case <-l.conn.done:
				return
			}
		}
		if !l.await(p.at) {
			return
		}
		if p.end != nil {
			l.finish(p.end)
			return
		}
		if !l.silent.Load() && !l.write(p.bytes, &sent) {
			return
		}
		l.free(len(p.bytes))
	}
}

// await returns when a piece arrives, or is lost: the lane is silent then. It
// returns false when the connection was reset.
func (l *lane) await(at time.Time) bool {
	for {
		d, changed := l.direction()
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
		if !l.pause(left, d.Stall, changed) {
			return false
		}
	}
}

// pause waits for changed, and no longer than left unless stalled. It returns
// false when the connection was reset.
func (l *lane) pause(left time.Duration, stalled bool, changed <-chan struct{}) bool {
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

// write returns false when the connection was reset.
func (l *lane) write(b []byte, sent *int64) bool {
	d, _ := l.direction()
	cut := d.CutAfter > 0 && *sent+int64(len(b)) >= d.CutAfter
	if cut {
		b = b[:max(0, d.CutAfter-*sent)]
	}
	l.way.delivered.Add(int64(len(b))) // before dst can tell anyone
	n, err := l.dst.Write(b)
	l.way.delivered.Add(int64(n - len(b)))
	*sent += int64(n)
	switch {
	case cut:
		l.conn.reset()
	case err != nil && l.back.deaf():
		l.silent.Store(true) // and src doesn't hear of it
		return true
	case err != nil:
		l.conn.reset()
	default:
		return true
	}
	return false
}

// deaf reports whether nothing arrives in this direction.
func (l *lane) deaf() bool {
	d, _ := l.direction()
	return d.Drop || l.silent.Load()
}

// finish tells dst that src has ended, or was reset.
func (l *lane) finish(end error) {
	switch {
	case l.silent.Load():
	case end != io.EOF:
		l.conn.reset()
	default:
		cw, ok := l.dst.(interface{ CloseWrite() error })
		if !ok || errors.Is(cw.CloseWrite(), errors.ErrUnsupported) {
			l.dst.Close()
		}
	}
}
