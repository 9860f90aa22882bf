package group

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
)

// ErrClosed is returned once the Set was shut down. It is a net.ErrClosed.
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string        { return "the server was shut down" }
func (closedError) Is(target error) bool { return target == net.ErrClosed }

// Set holds the groups of a server, one for each listener. The zero Set is ready for
// use.
type Set struct {
	// Leaving, if not nil, is called when a group is closed and before it is waited
	// for: to tell the peers. Set it before the first call.
	Leaving func(*Group)

	mu     sync.Mutex // guards the fields below
	all    map[*Group]bool
	closed bool
	wg     sync.WaitGroup
}

// Serve calls handle in a goroutine of a new group for each connection that l accepts,
// until ctx ends, l fails or Shutdown is called. Then it closes l, and returns when the
// group is idle: what is left after grace (or, with Shutdown, after the end of its
// context) is cancelled. The error is that of l, unless it was closed by the end of ctx
// or by Shutdown. handle, or the member that it adds, closes the connection.
func (s *Set) Serve(ctx context.Context, l net.Listener, grace time.Duration, handle func(*Group, net.Conn)) error {
	defer l.Close()
	g, err := s.addGroup()
	if err != nil {
		return err
	}
	defer s.removeGroup(g)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	stopped := context.AfterFunc(g.Accepting(), func() { l.Close() })
	defer stopped()
	err = acceptLoop(l, g, handle)
	if !g.Open() { // Shutdown drains the group
		<-g.Idle()
		return nil
	}
	if ctx.Err() != nil {
		err = nil
	}
	limit, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	s.drainGroup(limit, g)
	return err
}

// acceptLoop runs handle in a goroutine of the group for each connection.
func acceptLoop(l net.Listener, g *Group, handle func(*Group, net.Conn)) error {
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
		// Out of file descriptors, for example: that passes.
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		if !backoff.Sleep(g.Accepting(), wait) {
			return ErrClosed
		}
	}
}

// Shutdown closes all groups, waits until they are idle or ctx ends, and then cancels
// and waits for what is left. The error is ctx's.
func (s *Set) Shutdown(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, g := range s.closeAll() {
		wg.Go(func() { s.drainGroup(ctx, g) })
	}
	wg.Wait()
	s.wg.Wait()
	return ctx.Err()
}

// CloseNow calls shutdown with a context that has ended, which is no error.
func CloseNow(shutdown func(context.Context) error) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := shutdown(ended); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Closed reports whether Shutdown was called.
func (s *Set) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Open reports whether a group is open.
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

func (s *Set) drainGroup(ctx context.Context, g *Group) {
	g.Close() // first: what comes later sees it
	if s.Leaving != nil {
		s.Leaving(g)
	}
	g.Drain(ctx)
}

func (s *Set) addGroup() (*Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
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

func (s *Set) removeGroup(g *Group) {
	g.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, g)
	s.wg.Done()
}

// closeAll closes the Set to new groups, and returns the groups in it.
func (s *Set) closeAll() []*Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return slices.Collect(maps.Keys(s.all))
}

// Listener accepts the connections of another listener once each has been prepared, in a
// goroutine of its own: none waits for another. Make one by [NewListener].
type Listener struct {
	addr  net.Addr
	conns chan net.Conn
	stop  context.CancelFunc
	ended chan struct{} // closed when nothing is accepted any more
	err   error         // why; set before ended is closed
	wg    sync.WaitGroup
}

// NewListener returns a Listener of the connections of l. prepare returns what Accept is to
// return, or nil if it has closed the connection. It ends soon after its context, which ends
// when the Listener is closed or l fails.
func NewListener(l net.Listener, prepare func(context.Context, net.Conn) net.Conn) *Listener {
	ctx, stop := context.WithCancel(context.Background())
	p := &Listener{addr: l.Addr(), conns: make(chan net.Conn), stop: stop, ended: make(chan struct{})}
	p.wg.Go(func() {
		defer close(p.ended)
		err := new(Set).Serve(ctx, l, 0, func(g *Group, raw net.Conn) {
			conn := prepare(g.Context(), raw)
			if conn == nil {
				return
			}
			select {
			case p.conns <- conn:
			case <-g.Context().Done():
				conn.Close()
			}
		})
		p.err = cmp.Or(err, net.ErrClosed)
	})
	return p
}

// Accept returns the next connection.
func (p *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, p.err
	}
}

// Close closes the other listener, and waits for what is being prepared, which it ends.
// Connections that were accepted live on.
func (p *Listener) Close() error {
	p.stop()
	p.wg.Wait()
	return nil
}

// Addr returns the address of the other listener.
func (p *Listener) Addr() net.Addr { return p.addr }
