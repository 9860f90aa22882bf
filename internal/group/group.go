// Package group keeps track of the goroutines that serve connections, and ends
// them in order.
package group

import (
	"context"
	"sync"
	"time"
)

// Group is goroutines that belong together: those of one listener, say. Make
// one by [New]. Its methods are safe for concurrent use.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex // guards the fields below
	closed    bool
	n         int
	members   map[Member]bool // of n; true: EndWithGroup was not called
	empty     chan struct{}   // closed when closed && n == 0
	joined    chan struct{}   // closed when n == 0, if not nil
	accepting context.Context // made when it is asked for: it takes half a kilobyte
	refuse    context.CancelFunc
}

// New returns an empty group. The end of ctx is the end of its Context; who made
// it calls Cancel at the latest.
func New(ctx context.Context) *Group {
	g := &Group{empty: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Context ends when whatever is left in the group has to end.
func (g *Group) Context() context.Context { return g.ctx }

// Cancel ends Context, and the members.
func (g *Group) Cancel() {
	g.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	for m := range g.members {
		g.endMemberLocked(m)
	}
}

// Accepting ends when the group lets no more in, or Context does.
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

// Open reports whether Accepting goes on.
func (g *Group) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed && g.ctx.Err() == nil
}

// Enter reports whether one more may run. The caller calls Leave at its end.
func (g *Group) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

// Member is in a group without a goroutine: a session that waits for its peer.
type Member interface {
	// EndWithGroup asks for the end of the member, which is a call of Remove. It
	// is called once at most, by Cancel and Drain, in a goroutine of its own. The
	// end of the context that New was given is not enough.
	EndWithGroup()
}

// Add adds a member. The caller is in the group, so Add can't fail: a group that
// lets no more in waits for its members. A member takes some 30 bytes, and a
// context.AfterFunc would take 500.
func (g *Group) Add(m Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
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
	g.n++
	go func() {
		defer g.Leave()
		m.EndWithGroup()
	}()
}

// Remove is the end of a member.
func (g *Group) Remove(m Member) {
	g.mu.Lock()
	delete(g.members, m)
	g.mu.Unlock()
	g.Leave()
}

// Leave is the end of what Enter let in.
func (g *Group) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n > 0 {
		return
	}
	if g.closed {
		close(g.empty)
	}
	if g.joined != nil {
		close(g.joined)
		g.joined = nil
	}
}

// await waits until nobody is in, though more may be let in.
func (g *Group) await() {
	g.mu.Lock()
	var joined chan struct{}
	if g.n > 0 {
		joined = make(chan struct{})
		g.joined = joined
	}
	g.mu.Unlock()
	if joined != nil {
		<-joined
	}
}

// Go runs f in a goroutine of the group and reports true, unless the group lets
// no more in.
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

// Close lets no more in. It does not wait, and may be called again.
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
	if g.n == 0 {
		close(g.empty)
	}
}

// Idle is closed once the group is closed and has nobody left.
func (g *Group) Idle() <-chan struct{} { return g.empty }

// Drain closes the group, waits until it is idle or ctx ends, and then cancels
// and waits for what is left.
func (g *Group) Drain(ctx context.Context) {
	g.Close()
	select {
	case <-g.empty:
	case <-ctx.Done():
	}
	g.Cancel()
	<-g.empty
}

// Sleep reports whether d passed before the group let no more in.
func (g *Group) Sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-g.Accepting().Done():
		return false
	}
}
