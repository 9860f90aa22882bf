package group_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/group"
)

// listener accepts what it is given: a net.Conn or an error.
type listener struct {
	give   chan any
	once   sync.Once
	closed chan struct{}
}

func newListener() *listener { return &listener{give: make(chan any), closed: make(chan struct{})} }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case v := <-l.give:
		if err, ok := v.(error); ok {
			return nil, err
		}
		return v.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{} }

type temporary struct{}

func (temporary) Error() string   { return "too many open files" }
func (temporary) Temporary() bool { return true }

// serving is a call of Serve.
type serving struct {
	set    *group.Set
	l      *listener
	cancel context.CancelFunc
	done   chan struct{} // closed when it has returned
	err    error
}

// serve handles each connection until its group is cancelled, or for a minute.
func serve(t *testing.T, set *group.Set, grace time.Duration) *serving {
	ctx, cancel := context.WithCancel(t.Context())
	s := &serving{set: set, l: newListener(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = set.Serve(ctx, s.l, grace, func(g *group.Group, conn net.Conn) {
			defer conn.Close()
			select {
			case <-g.Context().Done():
			case <-time.After(time.Minute):
			}
		})
	}()
	return s
}

// accept gives the listener a connection, and returns its other end.
func (s *serving) accept(t *testing.T) net.Conn {
	far, near := net.Pipe()
	t.Cleanup(func() { far.Close() })
	s.l.give <- near
	synctest.Wait()
	return far
}

func isOpen(conn net.Conn) bool {
	conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestServeEnds: each way, with one connection that would stay for a minute.
func TestServeEnds(t *testing.T) {
	broken := errors.New("broken")
	end := func(s *serving) { s.cancel() }
	fail := func(s *serving) { s.l.give <- broken }
	shutdown := func(limit time.Duration) func(*serving) {
		return func(s *serving) {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			s.set.Shutdown(ctx)
		}
	}
	tests := []struct {
		name  string
		grace time.Duration
		end   func(*serving)
		took  time.Duration
		want  error
	}{
		{"ctx, grace", time.Hour, end, time.Minute, nil},
		{"ctx, little grace", time.Second, end, time.Second, nil},
		{"ctx, no grace", 0, end, 0, nil},
		{"ctx, negative grace", -1, end, 0, nil},
		{"listener", time.Second, fail, time.Second, broken},
		{"listener closed by another", time.Second, func(s *serving) { s.l.Close() }, time.Second, net.ErrClosed},
		{"Shutdown, patient", 0, shutdown(time.Hour), time.Minute, nil},
		{"Shutdown, impatient", time.Hour, shutdown(time.Second), time.Second, nil},
		{"Shutdown, at once", time.Hour, shutdown(0), 0, nil},
		{"CloseNow", time.Hour, func(s *serving) {
			if err := group.CloseNow(s.set.Shutdown); err != nil || s.set.Open() {
				t.Errorf("got %v of CloseNow, open %v; want neither", err, s.set.Open())
			}
		}, 0, nil},
		{"ctx, then Shutdown", time.Hour, func(s *serving) {
			s.cancel()
			synctest.Wait()
			shutdown(time.Second)(s)
		}, time.Second, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, &group.Set{}, tt.grace)
				defer s.cancel()
				far := s.accept(t)
				if !s.set.Open() {
					t.Error("a Set that serves is not open")
				}
				began := time.Now()
				tt.end(s)
				<-s.done
				if took := time.Since(began); took != tt.took || s.err != tt.want {
					t.Errorf("got %v after %v, want %v after %v", s.err, took, tt.want, tt.took)
				}
				if !isDone(s.l.closed) || isOpen(far) {
					t.Error("the listener or the connection was left open")
				}
			})
		})
	}
}

// TestServeLetsLinger: the listener is closed at once, the connection is not.
func TestServeLetsLinger(t *testing.T) {
	for _, way := range []string{"ctx", "Shutdown"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, &group.Set{}, time.Hour)
				defer s.cancel()
				far := s.accept(t)
				if way == "ctx" {
					s.cancel()
				} else {
					go s.set.Shutdown(t.Context())
				}
				synctest.Wait()
				if !isDone(s.l.closed) || isDone(s.done) || !isOpen(far) {
					t.Errorf("got listener closed %v, returned %v, connection open %v; want true, false, true",
						isDone(s.l.closed), isDone(s.done), isOpen(far))
				}
				<-s.done
			})
		})
	}
}

// TestServeBacksOff: temporary errors wait, longer each time, and begin anew
// after a connection. Shutdown ends a wait.
func TestServeBacksOff(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, &group.Set{}, 0)
		defer s.cancel()
		s.l.give <- temporary{}
		for _, want := range []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, 1000 * ms, 1000 * ms} {
			began := time.Now()
			s.l.give <- temporary{}
			if got := time.Since(began); got != want {
				t.Errorf("got a wait of %v, want %v", got, want)
			}
		}
		s.accept(t)
		s.l.give <- temporary{}
		began := time.Now()
		s.l.give <- temporary{}
		if got := time.Since(began); got != 5*ms {
			t.Errorf("got a wait of %v after a connection, want 5ms", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		s.set.Shutdown(ctx)
		<-s.done
		if took := time.Since(began); s.err != nil || took != 0 {
			t.Errorf("got %v after %v, want no error at once", s.err, took)
		}
	})
}

// TestShutdown waits for all groups, and lets nobody in any more.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set group.Set
		a, b := serve(t, &set, 0), serve(t, &set, 0)
		defer a.cancel()
		defer b.cancel()
		a.accept(t)
		b.accept(t)
		if set.Closed() {
			t.Error("got closed before Shutdown")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := set.Shutdown(ctx); err != context.DeadlineExceeded {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		synctest.Wait()
		if !isDone(a.done) || !isDone(b.done) || !set.Closed() {
			t.Error("Shutdown returned before the groups were gone")
		}
		if err := set.Shutdown(t.Context()); err != nil {
			t.Errorf("got %v of a second call, want nil", err)
		}
		late := serve(t, &set, 0)
		defer late.cancel()
		<-late.done
		if late.err != group.ErrClosed || !isDone(late.l.closed) {
			t.Errorf("got %v, listener closed %v; want %v, true", late.err, isDone(late.l.closed), group.ErrClosed)
		}
	})
}

// TestLeaving: the peers hear of it after the group is closed, before it is
// waited for.
func TestLeaving(t *testing.T) {
	for _, way := range []string{"ctx", "Shutdown"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				set := &group.Set{Leaving: func(g *group.Group) {
					if g.Enter() || isDone(g.Idle()) || g.Context().Err() != nil {
						t.Error("want a closed group that is not idle or cancelled")
					}
					at = append(at, time.Now())
				}}
				s := serve(t, set, time.Hour)
				defer s.cancel()
				s.accept(t)
				began := time.Now()
				if way == "ctx" {
					s.cancel()
				} else {
					set.Shutdown(t.Context())
				}
				<-s.done
				if len(at) != 1 || !at[0].Equal(began) {
					t.Errorf("got calls at %v, want one at %v", at, began)
				}
			})
		})
	}
}

// TestShutdownWaitsForServe, whose group is idle, and which is not at its end.
func TestShutdownWaitsForServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var calls atomic.Int32
		set := &group.Set{Leaving: func(*group.Group) {
			if calls.Add(1) == 1 {
				<-hold
			}
		}}
		s := serve(t, set, 0)
		s.cancel()
		synctest.Wait() // Serve is in Leaving
		down := make(chan struct{})
		go func() {
			defer close(down)
			set.Shutdown(t.Context())
		}()
		synctest.Wait()
		if isDone(down) {
			t.Error("Shutdown returned before Serve")
		}
		close(hold)
		<-down
		<-s.done
	})
}

func TestErrClosed(t *testing.T) {
	if !errors.Is(group.ErrClosed, net.ErrClosed) || errors.Is(group.ErrClosed, context.Canceled) {
		t.Error("want ErrClosed to be net.ErrClosed alone")
	}
}
