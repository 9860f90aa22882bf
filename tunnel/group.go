package tunnel

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A group is the carriers that came by one listener or request, with the
// goroutines that serve them.
type group struct {
	// ctx ends when whatever is left has to end.
	ctx    context.Context
	cancel context.CancelFunc
	// accepting ends when no more are let in.
	accepting context.Context
	refuse    context.CancelFunc

	mu     sync.Mutex // guards the fields below
	closed bool
	n      int
	empty  chan struct{} // closed when closed && n == 0
}

// newGroup returns a group whose ctx ends with the parent, too.
func newGroup(parent context.Context) *group {
	g := &group{empty: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(parent)
	g.accepting, g.refuse = context.WithCancel(g.ctx)
	return g
}

// enter reports whether one more may run; leave ends it.
func (g *group) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.empty)
	}
}

// start runs f in a goroutine, unless the group is closing.
func (g *group) start(f func()) bool {
	if !g.enter() {
		return false
	}
	go func() {
		defer g.leave()
		f()
	}()
	return true
}

// closing lets no more in.
func (g *group) closing() {
	g.refuse()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	if g.n == 0 {
		close(g.empty)
	}
}

// idle is closed when the group is closing and its goroutines have ended.
func (g *group) idle() <-chan struct{} { return g.empty }

// sleep reports whether d passed before the group let no more in.
func (g *group) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-g.accepting.Done():
		return false
	}
}

// groups are those of a Server.
type groups struct {
	mu       sync.Mutex // guards the fields below
	all      map[*group]bool
	shutting bool
	wg       sync.WaitGroup
}

var errShutdown = errors.New("the server was shut down")

func (gs *groups) add() (*group, error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.shutting {
		return nil, errShutdown
	}
	g := newGroup(context.Background())
	if gs.all == nil {
		gs.all = map[*group]bool{}
	}
	gs.all[g] = true
	gs.wg.Add(1)
	return g, nil
}

func (gs *groups) remove(g *group) {
	g.cancel()
	gs.mu.Lock()
	defer gs.mu.Unlock()
	delete(gs.all, g)
	gs.wg.Done()
}

// shut lets no more groups in and returns those that are there.
func (gs *groups) shut() []*group {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.shutting = true
	all := make([]*group, 0, len(gs.all))
	for g := range gs.all {
		all = append(all, g)
	}
	return all
}

func (gs *groups) closed() bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.shutting
}

// wait returns when every group was removed.
func (gs *groups) wait() { gs.wg.Wait() }
