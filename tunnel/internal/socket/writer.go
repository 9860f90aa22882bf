package socket

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// writeSlice is how often a write that waits is looked at.
	writeSlice = time.Second
	// longWait is how long a write has waited for the network for sure: an unsent byte was
	// taken, and not only put into a buffer of the kernel that was free.
	longWait = 100 * time.Millisecond
)

// Writer writes to a connection. A write deadline in the future is not for the whole of a
// Write: it says how long the network may take nothing. A slow line takes some bytes in each
// second. Write has one caller at a time, the other methods are safe for concurrent use.
type Writer struct {
	conn  net.Conn
	below *Writer     // of conn, if it has one; its deadlines count then
	look  func() flow // nil: there is no TCP connection

	mu       sync.Mutex    // guards the fields below
	patience time.Duration // how long the network may take nothing; zero: the deadline is as it was set
	since    time.Time     // when it began to take nothing
	taken    time.Time     // when it last took bytes that had waited
	came     time.Time     // when it last brought bytes that wait for others that were lost
	flow     flow          // at the last look
	looked   time.Time     // when that was
}

// flow is what TCP knows of a connection.
type flow struct {
	waits     bool      // packets of ours are not delivered yet
	delivered uint32    // packets of ours
	early     uint32    // packets of the other end's that came before one that was lost
	heard     time.Time // when the last packet came
}

// NewWriter returns a Writer of conn.
func NewWriter(conn net.Conn) *Writer {
	w := &Writer{conn: conn}
	if c, ok := conn.(interface{ Writer() *Writer }); ok {
		w.below = c.Writer()
	} else if tc, ok := Innermost(conn).(*net.TCPConn); ok {
		w.look = func() flow { return flowOf(tc) }
	}
	return w
}

// Write writes all of p, unless there is an error.
func (w *Writer) Write(p []byte) (n int, err error) {
	if w.below != nil {
		return w.conn.Write(p)
	}
	for {
		began := time.Now()
		var m int
		m, err = w.conn.Write(p[n:])
		n += m
		now := time.Now()
		w.mu.Lock()
		if m > 0 {
			w.since = now
			if now.Sub(began) >= longWait {
				w.taken = now
			}
		}
		again := errors.Is(err, os.ErrDeadlineExceeded) && w.extendLocked(now)
		w.mu.Unlock()
		if !again {
			return n, err
		}
	}
}

// extendLocked sets the next deadline; false if the network has taken nothing for too long.
func (w *Writer) extendLocked(now time.Time) bool {
	w.lookLocked(now)
	left := w.patience - now.Sub(w.since)
	if w.patience == 0 || left <= 0 {
		return false
	}
	return w.conn.SetWriteDeadline(now.Add(min(left, writeSlice))) == nil
}

// SetWriteDeadline bounds the Write that is under way, and later ones.
func (w *Writer) SetWriteDeadline(t time.Time) error {
	if w.below != nil {
		return w.conn.SetWriteDeadline(t)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.patience, w.since = 0, now
	if left := t.Sub(now); !t.IsZero() && left > 0 {
		w.patience = left
		t = now.Add(min(left, writeSlice))
	}
	return w.conn.SetWriteDeadline(t)
}

// lookLocked asks TCP: a write may wait for long while packets of an earlier one are delivered.
func (w *Writer) lookLocked(now time.Time) {
	if w.look == nil || now.Sub(w.looked) < writeSlice {
		return
	}
	before, first := w.flow, w.looked.IsZero()
	w.flow, w.looked = w.look(), now
	if first {
		return
	}
	if before.waits && w.flow.delivered != before.delivered {
		w.taken, w.since = later(w.taken, w.flow.heard), later(w.since, w.flow.heard)
	}
	if w.flow.early != before.early {
		w.came = w.flow.heard
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Progress returns when the network last took bytes that had to wait for it, and when it last
// brought some that can't be read yet, as earlier ones were lost: the other end, or what stands
// between, is there. Each is zero before the first time.
func (w *Writer) Progress() (taken, came time.Time) {
	if w.below != nil {
		return w.below.Progress()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookLocked(time.Now())
	return w.taken, w.came
}
