package tunnel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// lateMembers answers the first Watch after a while: with err, or with the
// addresses. Later ones are answered at once.
type lateMembers struct {
	after     time.Duration
	err       error
	addresses []string

	mu    sync.Mutex
	calls int
}

func (m *lateMembers) Watch(ctx context.Context, set func(map[string]string)) error {
	m.mu.Lock()
	m.calls++
	first := m.calls == 1
	m.mu.Unlock()
	if first {
		select {
		case <-time.After(m.after):
		case <-ctx.Done():
			return ctx.Err()
		}
		if m.err != nil {
			return m.err
		}
	}
	set(withoutZones(m.addresses))
	<-ctx.Done()
	return ctx.Err()
}

// failingMembers fails at once, each time.
type failingMembers string

func (m failingMembers) Watch(context.Context, func(map[string]string)) error {
	return errors.New(string(m))
}

// A replica that has just started does not know the others yet: a dial waits
// until the Membership has answered, but not for one that never does.
func TestDialAwaitsMembership(t *testing.T) {
	type want struct {
		code tunnel.Code
		took time.Duration
		text string
	}
	ab := []string{"a:1", "b:1"}
	for _, tt := range []struct {
		name    string
		members tunnel.Membership
		timeout time.Duration
		dials   []want // one after the other
	}{
		{"at once", &lateMembers{addresses: ab}, time.Minute, []want{{}}},
		{"late", &lateMembers{after: 3 * time.Second, addresses: ab}, time.Minute, []want{{took: 3 * time.Second}}},
		{"late, and there is nobody", &lateMembers{after: 3 * time.Second}, time.Minute,
			[]want{{code: tunnel.CodeNoAgent, took: 3 * time.Second}, {code: tunnel.CodeNoAgent}}},
		{"later than a dial waits", &lateMembers{after: 7 * time.Second, addresses: ab}, time.Minute, []want{
			{tunnel.CodeNoAgent, 5 * time.Second, "no answer from Peers yet"},
			{took: 2 * time.Second},
		}},
		{"the caller does not wait", &lateMembers{after: 3 * time.Second, addresses: ab}, 2 * time.Second,
			[]want{{code: tunnel.CodeTimeout, took: 2 * time.Second}, {took: time.Second}}},
		{"errors", failingMembers("away\nfor lunch"), time.Minute, []want{
			{tunnel.CodeNoAgent, 5 * time.Second, "away for lunch"},
			{tunnel.CodeNoAgent, 5 * time.Second, "away for lunch"},
			{tunnel.CodeNoAgent, 0, "away for lunch"},
		}},
		{"never", &lateMembers{after: time.Hour}, time.Minute, []want{
			{tunnel.CodeNoAgent, 5 * time.Second, "no answer from Peers yet"},
			{tunnel.CodeNoAgent, 5 * time.Second, "no answer from Peers yet"},
			{tunnel.CodeNoAgent, 0, "no answer from Peers yet"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "b")
				r.at("b", &tunnel.Agent{})
				a := r.serve(&tunnel.Server{Name: "a", Peers: tt.members})
				for i, want := range tt.dials {
					ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
					began := time.Now()
					conn, err := a.s.Dialer(testCluster).DialContext(ctx, "tcp", "echo:7")
					took := time.Since(began)
					cancel()
					if want.code != codeIn(err) || took != want.took {
						t.Errorf("dial %d: got %v after %v, want code %d after %v", i, err, took, want.code, want.took)
					}
					if err != nil && !strings.Contains(err.Error(), want.text) {
						t.Errorf("dial %d: got %q, want %q in it", i, err, want.text)
					}
					if conn != nil {
						checkEcho(t, conn)
						conn.Close()
					}
				}
			})
		})
	}
}

// A dial waits while a Membership that has failed recovers, which is no excuse
// then.
func TestMembershipRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "b")
		r.at("b", &tunnel.Agent{})
		a := r.serve(&tunnel.Server{Name: "a", Peers: &lateMembers{err: errors.New("away"), addresses: []string{"a:1", "b:1"}}})
		synctest.Wait()
		a.echo().Close()
		if _, err := a.s.Dialer("default/other").DialContext(t.Context(), "tcp", "x:7"); codeOf(err) != tunnel.CodeNoAgent || strings.Contains(err.Error(), "away") {
			t.Errorf("got %v, want no agent without an excuse", err)
		}
	})
}

// A dial whose cluster has an agent here waits for nobody.
func TestDialHereAwaitsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		a := r.serve(&tunnel.Server{Name: "a", Peers: &lateMembers{after: time.Hour}})
		r.at("a", &tunnel.Agent{})
		began := time.Now()
		a.echo().Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v, want no wait", took)
		}
	})
}

// A Server that serves nobody, or not yet, finds the agents of its replicas,
// and ends with Close.
func TestDialBeforeServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "b")
		r.at("b", &tunnel.Agent{})
		s := &tunnel.Server{Name: "a", Authority: r.Authority, PeerDial: r.dialPeer,
			Peers: &lateMembers{after: 3 * time.Second, addresses: []string{"b:1"}}}
		began := time.Now()
		conn, err := s.Dialer(testCluster).DialContext(t.Context(), "tcp", "echo:7")
		if took := time.Since(began); err != nil || took != 3*time.Second {
			t.Fatalf("got %v after %v, want a connection after 3 s", err, took)
		}
		checkEcho(t, conn)
		conn.Close()
		b := &bed{t: t, s: s, w: r.w, up: make(chan tunnel.SessionInfo, 1)}
		l, err := r.w.Listen(t.Context(), "a:1")
		if err != nil {
			t.Fatal(err)
		}
		b.serveAlso(l)
		b.echo().Close()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		b.clients.Wait()
		if _, err := b.dial("echo:7"); codeOf(err) != tunnel.CodeClosed {
			t.Errorf("got %v, want closed", err)
		}
	})
}

// Close ends the wait for a Membership.
func TestCloseEndsTheWaitForMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		a := r.serve(&tunnel.Server{Name: "a", Peers: &lateMembers{after: time.Hour}})
		failed := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := a.dial("echo:7")
			failed <- err
		}()
		synctest.Wait()
		if len(failed) > 0 {
			t.Fatalf("got %v, want to wait for the others", <-failed)
		}
		a.s.Close()
		if err := <-failed; err == nil || time.Since(began) != 0 {
			t.Errorf("got %v after %v, want an error at once", err, time.Since(began))
		}
	})
}
