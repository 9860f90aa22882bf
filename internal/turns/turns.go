// Package turns limits how many goroutines run at once. The others wait in queues, one
// for each source. The queues are served in rotation, so a source with a thousand
// requests delays only its own.
package turns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// ErrFull is the error of [Queue.Enter] if too many of the source are waiting.
var ErrFull = errors.New("too many of this source wait for their turn")

// Queue gives turns to sources of type K. Make one by [New]. Its methods are safe
// for concurrent use.
type Queue[K comparable] struct {
	// NewestFirst gives a source's turns to the goroutine that came last. It is set before
	// the first use.
	NewestFirst bool

	// MaxAll is how many may wait of all sources; zero: any number. One more takes the place of
	// the newest of the source with most, if its own has fewer. Set it before the first use.
	MaxAll int

	maxWaiting int

	mu      sync.Mutex // guards the fields below
	free    int
	all     int                // that wait
	waiting map[K][]chan error // closed when it is their turn, or gets ErrFull
	order   []K                // the keys of waiting, the next one first
}

// New returns a Queue with n turns. At most maxWaiting goroutines of a source may
// wait; zero means any number.
func New[K comparable](n, maxWaiting int) *Queue[K] {
	return &Queue[K]{maxWaiting: maxWaiting, free: n, waiting: map[K][]chan error{}}
}

// Source returns the address of a client, or for IPv6 its network (/64), because one
// site has a whole network. All addresses that are not IP addresses are one source.
func Source(addr net.Addr) netip.Prefix {
	ip, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Prefix{}
	}
	bits := 64
	if ip.Addr().Unmap().Is4() {
		bits = 32
	}
	prefix, _ := ip.Addr().Unmap().Prefix(bits)
	return prefix
}

// Enter waits for a turn. The caller gives it back by Leave. The error is ErrFull or
// ctx's cause.
func (q *Queue[K]) Enter(ctx context.Context, from K) error {
	turn, err := q.takeTurn(from)
	if turn == nil {
		return err
	}
	select {
	case err := <-turn:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	waited := q.leaveLocked(from, turn)
	q.mu.Unlock()
	if !waited && <-turn == nil {
		q.Leave() // it was our turn meanwhile
	}
	return context.Cause(ctx)
}

// Leave gives a turn back.
func (q *Queue[K]) Leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		q.free++
		return
	}
	from := q.order[0]
	queue := q.waiting[from]
	next := queue[0]
	if q.NewestFirst {
		next = queue[len(queue)-1]
	}
	close(next)
	q.leaveLocked(from, next)
	if len(queue) > 1 {
		q.order = append(q.order[1:], from)
	}
}

// Waits reports whether a goroutine of the source is waiting.
func (q *Queue[K]) Waits(from K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting[from] != nil
}

// takeTurn takes a free turn, or returns a channel that is closed when it is the
// caller's turn.
func (q *Queue[K]) takeTurn(from K) (chan error, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free > 0 {
		q.free--
		return nil, nil
	}
	if q.maxWaiting > 0 && len(q.waiting[from]) >= q.maxWaiting {
		return nil, ErrFull
	}
	if q.MaxAll > 0 && q.all >= q.MaxAll && !q.makeRoomLocked(from) {
		return nil, ErrFull
	}
	q.all++
	turn := make(chan error, 1)
	if q.waiting[from] == nil {
		q.order = append(q.order, from)
	}
	q.waiting[from] = append(q.waiting[from], turn)
	return turn, nil
}

// makeRoomLocked sends the newest of the source with most away, if from has fewer.
func (q *Queue[K]) makeRoomLocked(from K) bool {
	most := from
	for key, queue := range q.waiting {
		if len(queue) > len(q.waiting[most]) {
			most = key
		}
	}
	if most == from {
		return false
	}
	turn := q.waiting[most][len(q.waiting[most])-1]
	turn <- ErrFull
	return q.leaveLocked(most, turn)
}

// leaveLocked stops waiting, and reports whether the turn had not come yet.
func (q *Queue[K]) leaveLocked(from K, turn chan error) bool {
	i := slices.Index(q.waiting[from], turn)
	if i < 0 {
		return false
	}
	q.all--
	q.waiting[from] = slices.Delete(q.waiting[from], i, i+1)
	if len(q.waiting[from]) == 0 {
		delete(q.waiting, from)
		i := slices.Index(q.order, from)
		q.order = slices.Delete(q.order, i, i+1)
	}
	return true
}
