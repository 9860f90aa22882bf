// Package group keeps track of the goroutines that serve connections, and ends
// them in order.
package group

import (
	"context"
	"sync"
)

// Group is a set of goroutines, and of [Member]s without one, that end together, such
// as those of one listener. Make one by [New]. Its methods are safe for concurrent use.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex // guards the fields below
	closed    bool
	count     int             // of goroutines and members
	members   map[Member]bool // true: EndWithGroup was not called
	empty     chan struct{}   // closed when closed && count == 0
	accepting context.Context // made when it is asked for: it takes half a kilobyte
	refuse    context.CancelFunc
}

// New returns an empty group. Its Context ends with ctx. The caller calls Cancel in the
// end.
func New(ctx context.Context) *Group {
	g := &Group{empty: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Context ends when what is left in the group has to end at once.
func (g *Group) Context() context.Context { return g.ctx }

// Cancel ends Context, and asks the members to end.
func (g *Group) Cancel() {
	g.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	for m := range g.members {
		g.endMemberLocked(m)
	}
}

// Accepting ends when the group is closed, or with Context.
func (g *Group) Accepting() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.accepting == nil {
		g.accepting, g.refuse = context.WithCancel(g.ctx)
		if g.closed {
			g.refuse()
		}
	}
	return g.accepting
}

// Open reports whether Accepting has not ended.
func (g *Group) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed && g.ctx.Err() == nil
}

// Enter counts a goroutine, and reports whether the group is open for it. The goroutine
// calls Leave at its end.
func (g *Group) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.count++
	return true
}

// Member is in a group without a goroutine, such as a session that waits for its peer.
type Member interface {
	// EndWithGroup asks the member to end, which it does by a call of Remove. Cancel
	// and Drain call it, at most once, in a goroutine of its own. The end of the
	// context that New was given does not call it.
	EndWithGroup()
}

// Add adds a member. The caller is in the group, so Add can't fail: a closed group
// waits for what is in it. A member takes some 30 bytes, where a context.AfterFunc
// would take 500.
func (g *Group) Add(m Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count++
	if g.members == nil {
		g.members = map[Member]bool{}
	}
	g.members[m] = true
	if g.ctx.Err() != nil {
		g.endMemberLocked(m)
	}
}

func (g *Group) endMemberLocked(m Member) {
	if !g.members[m] {
		return
	}
	g.members[m] = false
	g.count++
	go func() {
		defer g.Leave()
		m.EndWithGroup()
	}()
}

// Remove removes a member, which has ended.
func (g *Group) Remove(m Member) {
	g.mu.Lock()
	delete(g.members, m)
	g.mu.Unlock()
	g.Leave()
}

// Leave is called at the end of what Enter has counted.
func (g *Group) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	if g.count == 0 && g.closed {
		close(g.empty)
	}
}

// Go runs f in a goroutine of the group, and reports whether the group is open for it.
func (g *Group) Go(f func()) bool {
	if !g.Enter() {
		return false
	}
	go func() {
		defer g.Leave()
		f()
	}()
	return true
}

// Close closes the group for new goroutines. It does not wait, and may be called again.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	if g.refuse != nil {
		g.refuse()
	}
	if g.count == 0 {
		close(g.empty)
	}
}

// Idle returns a channel that is closed when the group is closed and empty.
func (g *Group) Idle() <-chan struct{} { return g.empty }

// Drain closes the group, waits until it is idle or ctx ends, and then cancels it and
// waits for what is left.
func (g *Group) Drain(ctx context.Context) {
	g.Close()
	select {
	case <-g.empty:
	case <-ctx.Done():
	}
	g.Cancel()
	<-g.empty
}
