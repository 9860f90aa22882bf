package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A thousand agents that lost one server at once don't come back in one
// second, and no agent tries in a loop while the server is away.
func TestAgentsComeBackSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 1000
		var mu sync.Mutex
		var dials []time.Time
		up := false
		refusing := func(context.Context, string, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dials = append(dials, time.Now())
			up = true
			return nil, syscall.ECONNREFUSED
		}
		b := newBed(t, &tunnel.Server{})
		inv := b.invite()
		for range agents {
			b.start(&tunnel.Agent{
				Dial:       refusing,
				Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil },
			})
		}
		synctest.Wait()
		mu.Lock()
		if !up {
			t.Fatal("no agent dials")
		}
		dials = nil
		mu.Unlock()
		began := time.Now()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		perSecond := make([]int, 61)
		for _, at := range dials {
			perSecond[int(at.Sub(began)/time.Second)]++
		}
		if most := slices.Max(perSecond); most > agents/2 || perSecond[0] == 0 {
			t.Errorf("got %v dials in each second, want half of the agents at most", perSecond)
		}
		if len(dials) > 8*agents {
			t.Errorf("got %d dials in a minute, want 8 of each agent at most", len(dials))
		}
	})
}

// An agent whose server drains is at the next one before the first is gone,
// its streams live on.
func TestDrainToAnotherServer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		grace time.Duration
		cut   bool
	}{
		{"the stream ends in time", time.Hour, false},
		{"the grace ends", 10 * time.Second, true},
		{"no grace", -1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				authority, err := tunnel.NewAuthority()
				if err != nil {
					t.Fatal(err)
				}
				w := &wires{}
				one := newBedAt(t, &tunnel.Server{Authority: authority, Grace: tt.grace}, w, "one:1")
				two := newBedAt(t, &tunnel.Server{Authority: authority}, w, "two:1")
				one.agent(&tunnel.Agent{Servers: []string{"one:1", "two:1"}})
				busy := one.echo()
				began := time.Now()
				one.stopServe()
				two.await()
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("the agent was at the next server after %v, want 4 s at most", took)
				}
				two.echo().Close()
				if _, err := one.dial("echo:7"); codeOf(err) != tunnel.CodeNoAgent {
					t.Errorf("got %v from the server that drains, want no agent", err)
				}
				if !tt.cut {
					time.Sleep(30 * time.Minute)
					checkEcho(t, busy)
					busy.Close()
				}
				if err := <-one.served; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); tt.cut && took > tt.grace+6*time.Second {
					t.Errorf("Serve drained for %v, want the grace", took)
				}
				if tt.cut {
					if _, err := io.ReadAll(busy); !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
						t.Errorf("the stream ended with %v, want a reset", err)
					}
				}
			})
		})
	}
}

// Run's context ends: the server gives it no more streams, those that are
// open live to their end or the grace.
func TestAgentDrains(t *testing.T) {
	for _, tt := range []struct {
		name  string
		grace time.Duration
		after time.Duration // the client is done; zero: never
		want  time.Duration
	}{
		{"the client ends", time.Hour, 10 * time.Minute, 10 * time.Minute},
		{"the grace ends", 20 * time.Second, 0, 20 * time.Second},
		{"no grace", -1, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := make(chan error, 1)
				b := newBed(t, &tunnel.Server{})
				a := b.agent(&tunnel.Agent{Grace: tt.grace, Hooks: tunnel.AgentHooks{Disconnected: func(_ string, err error) { left <- err }}})
				busy := b.echo()
				began := time.Now()
				if tt.after > 0 {
					time.AfterFunc(tt.after, func() { busy.Close() })
				}
				a.stop()
				if took := time.Since(began).Truncate(time.Second); took != tt.want {
					t.Errorf("Run ended after %v, want %v", took, tt.want)
				}
				if err := <-left; tt.after == 0 && codeOf(err) != tunnel.CodeClosed || tt.after > 0 && err != nil {
					t.Errorf("got %v", err)
				}
				busy.Close()
			})
		})
	}
}

// Close ends everything at once; what comes afterwards is refused.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{})
		busy := b.echo()
		slow := make(chan error)
		go func() {
			_, err := b.dial("x:3")
			slow <- err
		}()
		b.wire() // a carrier that says nothing
		synctest.Wait()
		began := time.Now()
		if err := b.s.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-slow; codeOf(err) != tunnel.CodeLost {
			t.Errorf("a dial that waits: got %v, want lost", err)
		}
		if _, err := busy.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
			t.Errorf("a stream: got %v, want a reset", err)
		}
		if err := <-b.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if _, err := b.dial("echo:7"); codeOf(err) != tunnel.CodeClosed || !errors.Is(err, net.ErrClosed) {
			t.Errorf("a dial: got %v, want closed", err)
		}
		l, err := b.w.Listen(t.Context(), "again:1")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.s.Serve(t.Context(), l); codeOf(err) != tunnel.CodeClosed {
			t.Errorf("Serve: got %v, want closed", err)
		}
		if _, err := l.Accept(); err == nil {
			t.Error("Serve left its listener open")
		}
		if b.s.Status().Ready {
			t.Error("got ready")
		}
		if err := b.s.Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
	})
}

// Shutdown waits for streams, no longer than its context.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{})
		busy := b.echo()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(10*time.Minute, func() { busy.Close() })
		began := time.Now()
		if err := b.s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("Shutdown took %v, want 10 minutes", took)
		}
	})
}

func TestShutdownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{})
		b.echo()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's end", err)
		}
	})
}

// The zero Server and Agent say what they lack.
func TestRequiredFields(t *testing.T) {
	l, err := (&wires{}).Listen(t.Context(), "x:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := new(tunnel.Server).Serve(t.Context(), l); codeOf(err) != tunnel.CodeConfig {
		t.Errorf("Serve: got %v, want a configuration error", err)
	}
	if _, err := new(tunnel.Server).Dialer("x").DialContext(t.Context(), "tcp", "x:1"); codeOf(err) != tunnel.CodeConfig {
		t.Errorf("DialContext: got %v, want a configuration error", err)
	}
	for name, a := range map[string]*tunnel.Agent{
		"nothing":       {},
		"a bad server":  {Credentials: &tunnel.MemoryCredentials{}, Servers: []string{"http://x"}},
		"a bad pattern": {Credentials: &tunnel.MemoryCredentials{}, Targets: tunnel.Targets{Allow: []string{"x"}}},
	} {
		if err := a.Run(t.Context()); codeOf(err) != tunnel.CodeConfig {
			t.Errorf("Run with %s: got %v, want a configuration error", name, err)
		}
	}
}

// TestShortSessionsThatWork: a session that carried a connection worked, however short it was.
func TestShortSessionsThatWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{})
		for range 8 {
			b.echo().Close()
			time.Sleep(2 * time.Second)
			b.w.cut()
			began := time.Now()
			b.await()
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("the agent was back after %v, want 4 s at most", took)
			}
		}
	})
}
