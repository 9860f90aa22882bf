package tunnel_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Each renewal replaces both sessions, one by one: both servers have one that
// takes streams all the time, and streams live through many certificates.
func TestRenewalOfTwoSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewed atomic.Int32
		server := func() *tunnel.Server {
			return &tunnel.Server{CertificateLife: time.Hour, Hooks: tunnel.Hooks{
				Renewed: func(tunnel.Identity, time.Time) { renewed.Add(1) },
			}}
		}
		m := newMesh(t)
		m.serve("a", server())
		m.serve("b", server())
		m.balance(alternate())
		a := m.agent(&tunnel.Agent{Hooks: tunnel.AgentHooks{
			Failed: func(server string, err error, _ time.Duration) { t.Errorf("failed at %s: %v", server, err) },
		}})
		m.meets(a, "a", "b")
		one, two := m.bed("a").echo(), m.bed("b").echo()
		defer one.Close()
		defer two.Close()
		for range 5 {
			time.Sleep(39 * time.Minute) // it renews after 40, or as much after the last time
			for range 1000 {
				time.Sleep(100 * time.Millisecond)
				if got := serving(a); len(got) > 3 || len(slices.Compact(got)) != 2 {
					t.Fatalf("got sessions with %q, want two servers", got)
				}
			}
			m.meets(a, "a", "b")
			for _, name := range m.names() {
				taking := 0
				for _, s := range m.bed(name).sessions() {
					if s.Draining {
						continue
					}
					taking++
					if s.Expires.Before(a.Status().Expires) {
						t.Errorf("%s: got %+v, want the certificate of now", name, s)
					}
				}
				if taking != 1 {
					t.Errorf("%s: got %d sessions that take streams, want 1", name, taking)
				}
			}
			checkEcho(t, one)
			checkEcho(t, two)
		}
		if n := renewed.Load(); n < 4 || n > 5 {
			t.Errorf("got %d renewals, want one each 40 minutes", n)
		}
	})
}

// Whichever replicas the new sessions are with, each takes the place of one:
// the same server's, else the oldest.
func TestRenewalReplaces(t *testing.T) {
	for _, tt := range []struct {
		name    string
		picks   []string // by the balancer
		between []string // what takes streams when the first new one is there
		after   []string
	}{
		{"in turn", []string{"a", "b"}, []string{"a", "b"}, []string{"a", "b"}},
		{"the newer first", []string{"b", "a"}, []string{"a", "b"}, []string{"a", "b"}},
		{"a third", []string{"c", "a"}, []string{"b", "c"}, []string{"a", "c"}},
		{"a third last", []string{"b", "c"}, []string{"a", "b"}, []string{"b", "c"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t)
				for _, name := range []string{"a", "b", "c"} {
					m.serve(name, &tunnel.Server{CertificateLife: time.Hour})
				}
				picks, last := append([]string{"a", "a", "b"}, tt.picks...), make(chan struct{})
				m.balance(func([]string) string {
					pick := picks[0]
					if picks = picks[1:]; len(picks) == 0 {
						<-last
					}
					return pick
				})
				connected := make(chan struct{}, 10)
				a := m.agent(&tunnel.Agent{Hooks: tunnel.AgentHooks{Connected: func(string, tunnel.Identity) { connected <- struct{}{} }}})
				<-connected
				<-connected
				busy := m.bed("a").echo()
				<-connected
				synctest.Wait()
				if got := serving(a); !slices.Equal(got, tt.between) {
					t.Errorf("got sessions with %q after the first, want %q", got, tt.between)
				}
				close(last)
				<-connected
				synctest.Wait()
				if got := serving(a); !slices.Equal(got, tt.after) {
					t.Errorf("got sessions with %q after the second, want %q", got, tt.after)
				}
				checkEcho(t, busy)
				busy.Close()
				synctest.Wait()
				if got := a.Status().Sessions; len(got) != 2 {
					t.Errorf("got %+v, want two sessions", got)
				}
			})
		})
	}
}

// A renewed agent goes back to the address that it is at, not to the next.
func TestRenewalSameAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		b.agent(&tunnel.Agent{Servers: []string{wireAddress, "none:1", "none:2"}, Hooks: tunnel.AgentHooks{
			Failed: func(server string, err error, _ time.Duration) { t.Errorf("failed at %s: %v", server, err) },
		}})
		for range 5 {
			time.Sleep(41 * time.Minute)
			b.await()
		}
	})
}

// Run waits for a renewal that is being saved.
func TestRunEndsWhileRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		store := &slowCredentials{entered: make(chan struct{}), leave: make(chan struct{})}
		a := b.agent(&tunnel.Agent{Credentials: store})
		store.slow.Store(true)
		<-store.entered
		ended := make(chan struct{})
		go func() {
			a.stop()
			close(ended)
		}()
		time.Sleep(time.Hour)
		select {
		case <-ended:
			t.Error("Run ended before the store had the credentials")
		default:
		}
		close(store.leave)
		<-ended
	})
}

// The end of a session is the end of what is saved because of it, and no failure.
func TestRunEndsWhileTrusting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		store := &stuckCredentials{entered: make(chan struct{})}
		a := b.agent(&tunnel.Agent{Credentials: store, Grace: -1, Hooks: tunnel.AgentHooks{
			Failed: func(server string, err error, _ time.Duration) { t.Errorf("failed at %s: %v", server, err) },
		}})
		store.stuck.Store(true)
		next, err := tunnel.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		next.Trusted = append(next.Trusted, b.s.Authority.Certificate)
		if err := b.s.SetAuthority(next); err != nil {
			t.Fatal(err)
		}
		<-store.entered
		began := time.Now()
		a.stop()
		// Both ends may be writing, and a pipe holds nothing: a goodbye then
		// waits for as long as one may take.
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("Run ended after %v, want at once", took)
		}
	})
}

// stuckCredentials save nothing while stuck is set.
type stuckCredentials struct {
	tunnel.MemoryCredentials
	stuck   atomic.Bool
	entered chan struct{}
}

func (s *stuckCredentials) Save(ctx context.Context, c *tunnel.Credentials) error {
	if s.stuck.Load() {
		s.entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	return s.MemoryCredentials.Save(ctx, c)
}

// slowCredentials stop who saves while slow is set.
type slowCredentials struct {
	tunnel.MemoryCredentials
	slow           atomic.Bool
	entered, leave chan struct{}
}

func (s *slowCredentials) Save(ctx context.Context, c *tunnel.Credentials) error {
	if s.slow.CompareAndSwap(true, false) {
		s.entered <- struct{}{}
		<-s.leave
	}
	return s.MemoryCredentials.Save(ctx, c)
}

// A renewal does not wait for the search for the second server, which hangs,
// nor is the session dropped that it came by.
func TestRenewalWhileSeeking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renewed := make(chan time.Time, 10)
		m := newMesh(t)
		m.serve("a", &tunnel.Server{CertificateLife: time.Hour})
		hangs := &hangingDials{mesh: m, hung: make(chan struct{}, 1000), after: 2}
		m.bed("a").agent(&tunnel.Agent{
			Dial: hangs.Dial, Servers: []string{"a:1"},
			Hooks: tunnel.AgentHooks{Renewed: func(tunnel.Identity, time.Time) { renewed <- time.Now() }},
		})
		m.serve("b", &tunnel.Server{CertificateLife: time.Hour})
		began := time.Now()
		time.Sleep(50 * time.Minute)
		select {
		case at := <-renewed:
			if took := at.Sub(began); took > 41*time.Minute {
				t.Errorf("the certificate was renewed after %v, want 40 minutes", took)
			}
		default:
			t.Fatal("the certificate was not renewed")
		}
		m.bed("a").echo().Close()
		hangs.mu.Lock()
		hangs.after = 1 << 30
		hangs.mu.Unlock()
		before := m.bed("a").sessions()
		time.Sleep(2 * time.Minute)
		after := m.bed("a").sessions()
		if len(before) != 1 || len(after) != 1 || before[0].ID == after[0].ID {
			t.Errorf("got %+v, then %+v, want another session", before, after)
		}
	})
}

// A server that leaves while it renews holds nothing up: dials go to the other
// one at once, and the certificate is renewed there.
func TestRenewalOnLostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.balance(alternate())
		asked := make(chan string, 10)
		var silent atomic.Bool
		time.AfterFunc(39*time.Minute, func() { silent.Store(true) })
		for _, name := range []string{"a", "b"} {
			store := &silentStore{MemoryStore: &m.store, silent: &silent, asked: func() { asked <- name }}
			m.serve(name, &tunnel.Server{CertificateLife: time.Hour, Store: store})
		}
		renewed := make(chan time.Time, 10)
		a := m.agent(&tunnel.Agent{Hooks: tunnel.AgentHooks{Renewed: func(tunnel.Identity, time.Time) { renewed <- time.Now() }}})
		m.meets(a, "a", "b")
		name := <-asked
		silent.Store(false)
		m.kill(name)
		gone := time.Now()
		synctest.Wait()
		other := m.bed(m.names()[0])
		other.echo().Close()
		m.serve("c", &tunnel.Server{})
		m.meets(a, m.names()...)
		if took := time.Since(gone); took > 12*time.Second {
			t.Errorf("the next session was there after %v", took)
		}
		if took := (<-renewed).Sub(gone); took > 5*time.Minute {
			t.Errorf("the certificate was renewed %v after the session's end", took)
		}
	})
}

// silentStore does not say who was revoked while silent is set.
type silentStore struct {
	*tunnel.MemoryStore
	asked  func()
	silent *atomic.Bool
}

func (s *silentStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	if kind == tunnel.KindRevoked && s.silent.Load() {
		s.asked()
		<-ctx.Done()
		return tunnel.Record{}, ctx.Err()
	}
	return s.MemoryStore.Get(ctx, kind, name)
}
