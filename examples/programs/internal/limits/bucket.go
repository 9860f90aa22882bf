package limits

import (
	"container/heap"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxPiece is how many bytes are asked for at once, and so how long one client can
	// be before another one.
	maxPiece = 32 << 10
	// maxLag is how many bytes a client may catch up that did not ask for a moment: one
	// connection can't always have a question waiting.
	maxLag = 8 * maxPiece
	// burstTime is for how long of silence a bucket keeps tokens.
	burstTime = 100 * time.Millisecond
)

// bucket is a token bucket of bytes a second. When there are too few, the clients that
// wait have equal shares, however many connections each has (start-time fair queueing).
type bucket struct {
	mu      sync.Mutex    // guards the fields below
	rate    *rate.Limiter // nil: no limit
	waiting waiters
	// finish is up to where a client has been served, and now where the bucket is, both
	// in bytes of each client. They begin anew when nobody waits.
	finish map[string]int64
	now    int64
	timer  *time.Timer // nil: nobody waits
	seq    uint64
}

// waiter waits for n bytes.
type waiter struct {
	n     int
	start int64 // its turn: the smallest is next
	seq   uint64
	index int // in waiters; -1: it is not there
	ready chan struct{}
}

func newBucket(bytesPerSecond int64) *bucket {
	b := &bucket{finish: map[string]int64{}}
	b.setRate(bytesPerSecond)
	return b
}

// setRate changes the rate. Zero is no limit.
func (b *bucket) setRate(bytesPerSecond int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	burst := max(maxPiece, int(float64(bytesPerSecond)*burstTime.Seconds()))
	switch {
	case bytesPerSecond == 0:
		b.rate = nil
	case b.rate == nil:
		b.rate = rate.NewLimiter(rate.Limit(bytesPerSecond), burst)
	default:
		b.rate.SetLimit(rate.Limit(bytesPerSecond))
		b.rate.SetBurst(burst)
	}
	b.serveLocked()
}

// takeNow takes n bytes, at most maxPiece, if they are there and nobody waits.
func (b *bucket) takeNow(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rate == nil || len(b.waiting) == 0 && b.rate.AllowN(time.Now(), n)
}

// take waits for n bytes, at most maxPiece. It returns false at once when done is closed.
func (b *bucket) take(done <-chan struct{}, client string, n int) bool {
	b.mu.Lock()
	w := &waiter{n: n, start: max(b.now-maxLag, b.finish[client]), seq: b.seq, ready: make(chan struct{})}
	b.seq++
	b.finish[client] = w.start + int64(n)
	heap.Push(&b.waiting, w)
	b.serveLocked()
	b.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-done:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.index < 0 { // it was its turn, just now
		return true
	}
	heap.Remove(&b.waiting, w.index)
	b.serveLocked()
	return false
}

// refund gives back n bytes that were taken.
func (b *bucket) refund(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate != nil {
		b.rate.AllowN(time.Now(), -n)
	}
	b.serveLocked()
}

// serveLocked lets those go on whose turn it is, and has itself called for the next.
func (b *bucket) serveLocked() {
	for len(b.waiting) > 0 {
		w := b.waiting[0]
		if wait := b.waitLocked(w.n); wait > 0 {
			b.wakeLocked(wait)
			return
		}
		heap.Pop(&b.waiting)
		b.now = max(b.now, w.start)
		close(w.ready)
	}
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.now = 0
	clear(b.finish)
}

// waitLocked takes n tokens, or returns when they will be there.
func (b *bucket) waitLocked(n int) time.Duration {
	if b.rate == nil {
		return 0
	}
	now := time.Now()
	r := b.rate.ReserveN(now, n)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

func (b *bucket) wakeLocked(wait time.Duration) {
	if b.timer != nil {
		b.timer.Reset(wait)
		return
	}
	b.timer = time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.serveLocked()
	})
}

// waiters is a heap by start.
type waiters []*waiter

func (q waiters) Len() int { return len(q) }

func (q waiters) Less(i, j int) bool {
	if q[i].start != q[j].start {
		return q[i].start < q[j].start
	}
	return q[i].seq < q[j].seq
}

func (q waiters) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push adds a *waiter; see [heap.Interface].
func (q *waiters) Push(x any) {
	w := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}

// Pop removes the last one.
func (q *waiters) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	w.index = -1
	return w
}
