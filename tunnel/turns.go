package tunnel

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// turns bounds how many goroutines do something at once. Those that wait are
// served by the source they came from, in rotation, and of one source the first
// comes first: whoever sends a thousand waits for a thousand, and others do not.
type turns struct {
	mu      sync.Mutex // guards the fields below
	free    int
	waiting map[netip.Prefix][]chan struct{}
	order   []netip.Prefix // the keys of waiting, the next one first
}

func newTurns(n int) *turns {
	return &turns{free: n, waiting: map[netip.Prefix][]chan struct{}{}}
}

// enter waits for a turn, which the caller gives back by leave. The error is
// ctx's cause.
func (t *turns) enter(ctx context.Context, from netip.Prefix) error {
	turn := t.ask(from)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.giveUp(from, turn) {
		t.leave() // it was our turn meanwhile
	}
	return context.Cause(ctx)
}

// waitsFor reports whether somebody of the source waits.
func (t *turns) waitsFor(from netip.Prefix) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[from] != nil
}

// ask returns what is closed when it is the caller's turn; nil: it is.
func (t *turns) ask(from netip.Prefix) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	turn := make(chan struct{})
	if t.waiting[from] == nil {
		t.order = append(t.order, from)
	}
	t.waiting[from] = append(t.waiting[from], turn)
	return turn
}

// giveUp reports whether the turn had not come.
func (t *turns) giveUp(from netip.Prefix, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[from], turn)
	if i < 0 {
		return false
	}
	t.waiting[from] = slices.Delete(t.waiting[from], i, i+1)
	if len(t.waiting[from]) == 0 {
		delete(t.waiting, from)
		i := slices.Index(t.order, from)
		t.order = slices.Delete(t.order, i, i+1)
	}
	return true
}

func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	from := t.order[0]
	t.order = t.order[1:]
	queue := t.waiting[from]
	close(queue[0])
	if len(queue) == 1 {
		delete(t.waiting, from)
		return
	}
	t.waiting[from] = queue[1:]
	t.order = append(t.order, from)
}
