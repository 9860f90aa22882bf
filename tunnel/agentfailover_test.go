package tunnel_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// A server ends or drains: the session with the other takes dials all the
// time, a new one is sought at once, and what is open lives on.
func TestOneOfTwoServersLeaves(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(m *mesh, name string)
		lives bool // an open stream
	}{
		{"it ends", func(m *mesh, name string) { m.kill(name) }, false},
		{"it drains", func(m *mesh, name string) { m.drain(name) }, true},
		{"it drains before the others hear", func(m *mesh, name string) {
			m.bed(name).stopServe()
			synctest.Wait()
			m.set(name, nil)
		}, true},
		{"it is restarted by its name", func(m *mesh, name string) {
			m.kill(name)
			m.serve(name, &tunnel.Server{})
		}, false},
		{"it drains for a new process by its name", func(m *mesh, name string) {
			m.drain(name)
			m.serve(name, &tunnel.Server{})
		}, true},
		{"it is restarted by another name", func(m *mesh, name string) {
			m.kill(name)
			m.serve("d", &tunnel.Server{})
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t, "a", "b")
				m.balance(alternate())
				a := m.agent(&tunnel.Agent{})
				m.meets(a, "a", "b")
				m.serve("c", &tunnel.Server{})
				old, other := m.bed("a"), m.bed("b")
				busy := old.echo()
				tt.leave(m, "a")
				synctest.Wait()
				other.echo().Close()
				if !a.Status().Connected {
					t.Error("the agent is not connected")
				}
				began := time.Now()
				for len(serving(a)) < 2 {
					time.Sleep(100 * time.Millisecond)
					other.echo().Close()
				}
				if took := time.Since(began); took > 8*time.Second {
					t.Errorf("the next session was there after %v", took)
				}
				if tt.lives {
					checkEcho(t, busy)
					busy.Close()
				} else if _, err := io.ReadAll(busy); err == nil {
					t.Error("got the end of the stream of a server that ended, want an error")
				}
				synctest.Wait()
				if got := a.Status().Sessions; len(got) != 2 {
					t.Errorf("got %+v, want two sessions", got)
				}
			})
		})
	}
}

// alternate picks one after the other.
func alternate() func(up []string) string {
	var mu sync.Mutex
	n := 0
	return func(up []string) string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return up[n%len(up)]
	}
}

// All servers leave at once, and come back.
func TestAllServersLeave(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(m *mesh, name string)
		down  time.Duration
		want  time.Duration
	}{
		{"they end", func(m *mesh, name string) { m.kill(name) }, 0, 12 * time.Second},
		{"they drain", func(m *mesh, name string) { m.drain(name) }, 0, 12 * time.Second},
		{"they end for long", func(m *mesh, name string) { m.kill(name) }, 10 * time.Minute, 38 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t, "a", "b")
				m.balance(alternate())
				a := m.agent(&tunnel.Agent{})
				m.meets(a, "a", "b")
				tt.leave(m, "a")
				tt.leave(m, "b")
				time.Sleep(tt.down)
				m.serve("c", &tunnel.Server{})
				m.serve("d", &tunnel.Server{})
				if took := m.meets(a, "c", "d"); took > tt.want {
					t.Errorf("the agent had its sessions after %v", took)
				}
				time.Sleep(5 * time.Minute)
				if n := m.dials(10 * time.Minute); n != 0 || len(a.Status().Sessions) != 2 {
					t.Errorf("got %d dials and %+v, want rest", n, a.Status().Sessions)
				}
			})
		})
	}
}

// A server that takes agents and sends them away at once is left alone more
// and more, while the session with the other goes on.
func TestServerThatSendsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "a")
		a := m.agent(&tunnel.Agent{})
		m.meets(a, "a")
		l, err := m.Listen(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		m.balance(func([]string) string { return "b" })
		if err := m.bed("a").s.TellServers("a", "b"); err != nil {
			t.Fatal(err)
		}
		var work sync.WaitGroup
		work.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				session, control, err := tunnel.RawServer(context.Background(), conn, m.authority)
				if err != nil {
					t.Error(err)
					return
				}
				control.Write(append(tunnel.RawWelcome(m.authority, "b", "a"), rawMessage(4)...)) // DRAIN
				<-session.Done()
			}
		})
		if n := m.dials(10 * time.Minute); n < 10 || n > 100 {
			t.Errorf("got %d dials in 10 minutes, want one each 15 s", n)
		}
		m.bed("a").echo().Close()
		if got := a.Status(); !slices.Equal(serving(a), []string{"a"}) || got.LastError != "" {
			t.Errorf("got %+v, want the session with a", got)
		}
		l.Close()
		work.Wait()
	})
}

// A caller that gives up because the agent is silent is told so: it is no trouble of the
// caller.
func TestAgentDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a")
		link := newTestLink(t)
		r.w.wrap = link.join
		r.at("a", &tunnel.Agent{})
		link.hang()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		_, err := r.beds["a"].s.Dialer(testCluster).DialContext(ctx, "tcp", "echo:7")
		var e *tunnel.Error
		if !errors.As(err, &e) || e.Code.Side() != tunnel.SideTunnel || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the agent does not answer") {
			t.Errorf("got %v, want an error about the agent, and that the context has ended", err)
		}
	})
}

// TestEndWhilePeersAreAsked: why the agents here were not enough is in the error, beside the
// end of the caller's context.
func TestEndWhilePeersAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		targets := testTargets()
		targets.Resolver = &targettest.Network{Hosts: map[string]string{"x": "192.0.2.1"}}
		r.at("a", &tunnel.Agent{Targets: targets})
		r.hang("a")
		r.hang("b")
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the operator left")
		time.AfterFunc(time.Second, func() { cancel(why) })
		_, err := r.beds["a"].s.Dialer(testCluster).DialContext(ctx, "tcp", "x:1")
		if codeOf(err) != tunnel.CodeCanceled {
			t.Errorf("got %v, want that the context has ended", err)
		}
		for _, is := range []error{context.Canceled, why, syscall.ECONNREFUSED} {
			if !errors.Is(err, is) {
				t.Errorf("got %v, want that errors.Is finds %v", err, is)
			}
		}
	})
}
