package tunnel_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// Through many certificates: a stream that is busy all the time is not
// dropped, and there is always a session for a dial.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewed atomic.Int32
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour, Hooks: tunnel.Hooks{
			Renewed: func(tunnel.Identity, time.Time) { renewed.Add(1) },
		}})
		a := b.agent(&tunnel.Agent{})
		busy := b.echo()
		began := time.Now()
		for range 300 {
			time.Sleep(time.Minute)
			checkEcho(t, busy)
			b.echo().Close()
		}
		if n := renewed.Load(); n < 7 || n > 8 {
			t.Errorf("got %d renewals in %v, want one each 40 minutes", n, time.Since(began))
		}
		synctest.Wait()
		if got := b.sessions(); len(got) != 2 || got[0].Streams != 1 || !got[0].Expires.After(time.Now()) {
			t.Errorf("got %+v, want the first, with its stream, and the newest", got)
		}
		if left := time.Until(a.Status().Expires); left <= 0 {
			t.Errorf("the agent's certificate ended %v ago", -left)
		}
		busy.Close()
	})
}

// While a renewed agent cannot connect anew, the session that it has goes on.
func TestRenewalKeepsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		b.agent(&tunnel.Agent{})
		b.w.mu.Lock()
		listeners := b.w.listeners
		b.w.listeners = nil
		b.w.mu.Unlock()
		for range 55 {
			time.Sleep(time.Minute)
			b.echo().Close()
		}
		b.w.mu.Lock()
		b.w.listeners = listeners
		b.w.mu.Unlock()
		time.Sleep(time.Minute)
		if got := b.sessions(); len(got) != 1 || got[0].ID == "1" {
			t.Errorf("got %+v, want another session", got)
		}
	})
}

// A renewal that fails is tried again; without one, the certificate's end is
// the session's, and a new invitation mends it without a restart.
func TestRenewalFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		heals bool
	}{
		{"for a while", true},
		{"for good", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan error, 100)
				store := &failingStore{}
				b := newBed(t, &tunnel.Server{CertificateLife: time.Hour, Store: store, Hooks: tunnel.Hooks{
					Disconnected: func(_ tunnel.SessionInfo, err error) { gone <- err },
				}})
				var inv atomic.Pointer[tunnel.Invitation]
				first := b.invite()
				inv.Store(&first)
				b.agent(&tunnel.Agent{Invitation: func(context.Context) (tunnel.Invitation, error) { return *inv.Load(), nil }})
				store.failing.Store(true)
				time.Sleep(50 * time.Minute)
				b.echo().Close()
				if n := store.failed.Load(); n < 2 {
					t.Errorf("got %d attempts to renew, want some", n)
				}
				store.failing.Store(!tt.heals)
				time.Sleep(20 * time.Minute)
				conn, err := b.dial("echo:7")
				if tt.heals {
					if err != nil {
						t.Fatal(err)
					}
					conn.Close()
					return
				}
				if codeOf(err) != tunnel.CodeNoAgent {
					t.Errorf("got %v, want no agent", err)
				}
				if err := <-gone; codeOf(err) != tunnel.CodeCertificateExpired {
					t.Errorf("the session ended with %v, want expired", err)
				}
				store.failing.Store(false)
				second := b.invite()
				inv.Store(&second)
				b.await()
				b.echo().Close()
			})
		})
	}
}

// failingStore fails to say who was revoked while failing is set.
type failingStore struct {
	tunnel.MemoryStore
	failing atomic.Bool
	failed  atomic.Int32
}

func (s *failingStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	if kind == tunnel.KindRevoked && s.failing.Load() {
		s.failed.Add(1)
		return tunnel.Record{}, errors.New("the store is away")
	}
	return s.MemoryStore.Get(ctx, kind, name)
}

// Revocation ends sessions and streams at once and refuses the agent; a new
// invitation lets it in as another one, without a restart.
func TestRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := make(chan error, 1000)
		b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Refused: refusals(refused)}})
		var inv atomic.Pointer[tunnel.Invitation]
		first := b.invite()
		inv.Store(&first)
		a := b.agent(&tunnel.Agent{Invitation: func(context.Context) (tunnel.Invitation, error) { return *inv.Load(), nil }})
		busy := b.echo()
		id := tunnel.Identity{Cluster: testCluster, Agent: b.sessions()[0].Agent}
		began := time.Now()
		if err := b.s.Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(busy); !errors.Is(err, syscall.ECONNRESET) && err == nil {
			t.Errorf("got %v, want an error", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stream ended after %v", took)
		}
		if _, err := b.dial("echo:7"); codeOf(err) != tunnel.CodeNoAgent {
			t.Errorf("got %v, want no agent", err)
		}
		time.Sleep(10 * time.Minute)
		if err := <-refused; codeOf(err) != tunnel.CodeRevoked {
			t.Errorf("got %v, want revoked", err)
		}
		if status := a.Status(); status.Connected || status.LastError == "" {
			t.Errorf("got %+v, want an error", status)
		}
		second := b.invite()
		inv.Store(&second)
		b.await()
		b.echo().Close()
		if got := b.sessions(); got[0].Agent == id.Agent {
			t.Error("the agent has its old identity")
		}
	})
}

// A server that shares the Store ends the session when it next looks.
func TestRevocationElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tunnel.MemoryStore{}
		b := newBed(t, &tunnel.Server{Store: store, CertificateLife: time.Hour})
		b.agent(&tunnel.Agent{})
		if _, err := recordsOf(store).Revoke(t.Context(), tunnel.Identity{Cluster: testCluster, Agent: b.sessions()[0].Agent}, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Minute) // it renews after 40
		if got := b.sessions(); len(got) != 0 {
			t.Errorf("got %+v, want no session", got)
		}
	})
}

// The authority is replaced under agents that are connected, and those that
// connect anew go on.
func TestRollover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		creds := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: creds, FirstBackoff: time.Second, MaxBackoff: time.Second})
		old := b.s.Authority
		next, err := tunnel.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []*tunnel.Authority{
			{Certificate: old.Certificate, Key: old.Key, Trusted: append(old.Trusted, next.Certificate)},
			{Certificate: next.Certificate, Key: next.Key, Trusted: append(next.Trusted, old.Certificate)},
			{Certificate: next.Certificate, Key: next.Key},
		} {
			if err := b.s.SetAuthority(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if held, err := creds.Load(t.Context()); err != nil || len(held.Roots) != 1+len(step.Trusted) {
				t.Errorf("step %d: the agent trusts %d authorities, %v, want %d", i, len(held.Roots), err, 1+len(step.Trusted))
			}
			b.w.cut()
			b.dialUntil("echo:7").Close()
			time.Sleep(90 * time.Minute)
			if got := b.sessions(); len(got) != 1 {
				t.Fatalf("step %d: got %+v, want a session", i, got)
			}
			b.echo().Close()
		}
		if err := b.s.SetAuthority(nil); codeOf(err) != tunnel.CodeConfig {
			t.Errorf("got %v, want a configuration error", err)
		}
	})
}

// A Server whose Authority cannot sign does not begin to serve.
func TestServeAuthority(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	for _, tt := range []struct {
		name      string
		authority *tunnel.Authority
		want      string
	}{
		{"none", nil, "field Authority of the Server is required"},
		{"empty", &tunnel.Authority{}, "field Certificate is required"},
		{"only a key", &tunnel.Authority{Key: a.Key}, "field Certificate is required"},
		{"only a certificate", &tunnel.Authority{Certificate: a.Certificate}, "field Key is required"},
		{"another key", &tunnel.Authority{Certificate: a.Certificate, Key: other.Key}, "field Key is not the key of Certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			s := &tunnel.Server{Authority: tt.authority}
			if err := s.Serve(ctx, l); codeOf(err) != tunnel.CodeConfig || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want a configuration error with %q", err, tt.want)
			}
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v of the listener, want it closed", err)
			}
		})
	}
}

// An agent whose clock is far ahead renews as often as one whose clock is
// right, and no more.
func TestRenewWithWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day, backdate = 24 * time.Hour, 15 * time.Minute
		for _, tt := range []struct {
			name  string
			ahead time.Duration
			got   bool // by a renewal, just now
			want  time.Duration
		}{
			{"right", 0, true, 2 * day},
			{"a day ahead", day, true, day},
			{"at the very end", 3*day - time.Second, true, day},
			{"past it", 5 * day, true, day},
			{"past it, at the start", 2*day + time.Hour, false, -time.Hour},
		} {
			issued := time.Now().Add(-tt.ahead)
			c := &tunnel.Credentials{Chain: []*x509.Certificate{{NotBefore: issued.Add(-backdate), NotAfter: issued.Add(3 * day)}}}
			var got time.Time
			if tt.got {
				got = time.Now()
			}
			if in := tunnel.RenewIn(c, got); in != tt.want {
				t.Errorf("%s: got %v, want %v", tt.name, in, tt.want)
			}
		}
	})
}

// A dial of a target ends with its session.
func TestTargetDialEndsWithSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			ended <- time.Now()
			return nil, ctx.Err()
		}}
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{Targets: *targetsThrough(n, tunnel.Targets{Allow: []string{"*:7"}})})
		dialed := make(chan error)
		go func() {
			_, err := b.dial("x:7")
			dialed <- err
		}()
		time.Sleep(time.Second)
		cut := time.Now()
		b.w.cut()
		if took := (<-ended).Sub(cut); took > time.Second {
			t.Errorf("it ended after %v, want at once", took)
		}
		if err := <-dialed; codeOf(err) != tunnel.CodeLost {
			t.Errorf("got %v, want lost", err)
		}
	})
}

// A target's connection need not have an address.
func TestTargetWithoutAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				io.Copy(far, far)
				far.Close()
			}()
			return nowhere{near}, nil
		}}
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{Targets: *targetsThrough(n, tunnel.Targets{Allow: []string{"*:7"}})})
		b.echo().Close()
	})
}

type nowhere struct{ net.Conn }

func (nowhere) RemoteAddr() net.Addr { return nil }
