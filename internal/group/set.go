package group

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// ErrClosed is returned once the Set was shut down. It is a net.ErrClosed.
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string        { return "the server was shut down" }
func (closedError) Is(target error) bool { return target == net.ErrClosed }

// Set is the groups of a server, one for each listener. The zero Set is ready
// for use.
type Set struct {
	// Leaving, if not nil, is called when a group lets no more in and before
	// it is waited for: to tell the peers. Set it before the first call.
	Leaving func(*Group)

	mu       sync.Mutex // guards the fields below
	all      map[*Group]bool
	shutting bool
	wg       sync.WaitGroup
}

// Serve calls handle in a goroutine of a new group for each connection that l
// accepts, until ctx ends, l fails or Shutdown is called. It closes l, and
// returns when the group is idle: what is left after grace is cancelled (by
// Shutdown, after that one's context). The error is that of l, if it was not
// closed from here; handle closes its connection, or the
// member that it adds does.
func (s *Set) Serve(ctx context.Context, l net.Listener, grace time.Duration, handle func(*Group, net.Conn)) error {
	defer l.Close()
	g, err := s.add()
	if err != nil {
		return err
	}
	defer s.remove(g)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	stopped := context.AfterFunc(g.Accepting(), func() { l.Close() })
	defer stopped()
	err = accept(l, g, handle)
	if !g.Open() { // Shutdown drains the group
		<-g.Idle()
		return nil
	}
	if ctx.Err() != nil {
		err = nil
	}
	limit, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	s.drain(limit, g)
	return err
}

// accept hands each connection to a goroutine of the group.
func accept(l net.Listener, g *Group, handle func(*Group, net.Conn)) error {
	var wait time.Duration
	for {
		conn, err := l.Accept()
		if err == nil {
			wait = 0
			if !g.Go(func() { handle(g, conn) }) {
				conn.Close()
				return ErrClosed
			}
			continue
		}
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return err
		}
		// Out of file descriptors, say: that passes.
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		if !g.Sleep(wait) {
			return ErrClosed
		}
	}
}

// Join runs f as the one member of a new group, for what came by no listener of
// the Set, and returns with it, or when the members that it added are removed.
func (s *Set) Join(f func(*Group)) error {
	g, err := s.add()
	if err != nil {
		return err
	}
	defer s.remove(g)
	if !g.Enter() {
		return ErrClosed
	}
	defer g.await()
	defer g.Leave()
	f(g)
	return nil
}

// Shutdown lets no more in, waits until the groups are idle or ctx ends, and
// then cancels and waits for what is left. The error is ctx's.
func (s *Set) Shutdown(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, g := range s.shut() {
		wg.Go(func() { s.drain(ctx, g) })
	}
	wg.Wait()
	s.wg.Wait()
	return ctx.Err()
}

// Closed reports whether Shutdown was called.
func (s *Set) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shutting
}

// Open reports whether there is a group that lets more in.
func (s *Set) Open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.all {
		if g.Open() {
			return true
		}
	}
	return false
}

func (s *Set) drain(ctx context.Context, g *Group) {
	g.Close() // first: what comes later sees it
	if s.Leaving != nil {
		s.Leaving(g)
	}
	g.Drain(ctx)
}

func (s *Set) add() (*Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shutting {
		return nil, ErrClosed
	}
	g := New(context.Background())
	if s.all == nil {
		s.all = map[*Group]bool{}
	}
	s.all[g] = true
	s.wg.Add(1)
	return g, nil
}

func (s *Set) remove(g *Group) {
	g.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, g)
	s.wg.Done()
}

// shut lets no more groups in and returns those that are there.
func (s *Set) shut() []*Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shutting = true
	all := make([]*Group, 0, len(s.all))
	for g := range s.all {
		all = append(all, g)
	}
	return all
}
