package tunnel_test

import (
	"context"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// greetedPeer is a session of a replica of this name.
func (b *bed) greetedPeer(c *tunnel.Credentials, name string) *mux.Session {
	b.t.Helper()
	session := b.rawPeer(c)
	control, err := session.Open(b.t.Context(), rawPeerHello(name))
	if err != nil {
		b.t.Fatal(err)
	}
	if kind, _, err := readRaw(control); kind != 2 || err != nil {
		b.t.Fatalf("got %d, %v, want a WELCOME", kind, err)
	}
	return session
}

// A replica that opens streams and does not complete what it asks has few goroutines here,
// and delays no other one.
func TestPeerFloods(t *testing.T) {
	const cluster = testCluster
	ask := rawMessage(kindAsk, uint16(7), []byte(cluster))
	push := rawMessage(70, uint16(7), []byte(cluster))
	for _, tt := range []struct {
		name  string
		first []byte
	}{
		{"half a request", ask[:9]},
		{"no byte of it", nil},
		{"a push without a payload", push},
		{"half a payload", slices.Concat(push, rawMessage(8, uint16(12), []byte("key"))[:9])},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{Name: "a"})
				c, err := tunnel.ServerCredentials(b.s.Authority)
				if err != nil {
					t.Fatal(err)
				}
				hostile, other := b.greetedPeer(c, "b"), b.greetedPeer(c, "c")
				before := runtime.NumGoroutine()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for range 1000 { // or until it is not read any more
					if _, err := hostile.Open(ctx, tt.first); err != nil {
						break
					}
				}
				synctest.Wait()
				if n := runtime.NumGoroutine() - before; n > 300 {
					t.Errorf("got %d goroutines more, want no more than 300", n)
				}
				began := time.Now()
				st, err := other.Open(t.Context(), ask)
				if err != nil {
					t.Fatal(err)
				}
				if kind, _, err := readRaw(st); kind != 65 || err != nil || time.Since(began) > 0 {
					t.Errorf("another replica got %d, %v after %v, want HAVE at once", kind, err, time.Since(began))
				}
			})
		})
	}
}

// Replicas have a bounded number of sessions. One more of the same address waits until one
// has ended.
func TestPeerSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{Name: "a"})
		c, err := tunnel.ServerCredentials(b.s.Authority)
		if err != nil {
			t.Fatal(err)
		}
		first := b.greetedPeer(c, "b")
		for range tunnel.MaxInbound - 1 {
			b.greetedPeer(c, "b")
		}
		time.AfterFunc(time.Second, func() { first.Close() })
		began := time.Now()
		b.greetedPeer(c, "c")
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("one more waited %v, want until another one has ended", waited)
		}
	})
}

// A replica that forwards 10,000 dials at once loses none.
func TestManyForwardsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		r := newReplicas(t)
		r.members.all = []string{"a:1", "b:1"}
		for _, name := range []string{"a", "b"} {
			r.serve(&tunnel.Server{Name: name, MaxStreams: n + 1})
		}
		r.mesh()
		r.at("b", &tunnel.Agent{MaxStreams: n + 1})
		r.beds["a"].echo().Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := make(chan struct{})
		errs := make(chan error, n)
		var dials sync.WaitGroup
		for range n {
			dials.Go(func() {
				<-start
				conn, err := r.beds["a"].s.Dialer(testCluster).DialContext(ctx, "tcp", "echo:7")
				if err == nil {
					defer conn.Close()
					if _, err = conn.Write([]byte("x")); err == nil {
						_, err = io.ReadFull(conn, make([]byte, 1))
					}
				}
				errs <- err
			})
		}
		close(start)
		failed := 0
		for range n {
			if err := <-errs; err != nil {
				if failed++; failed == 1 {
					t.Error(err)
				}
			}
		}
		if failed > 0 {
			t.Errorf("%d of %d dials failed", failed, n)
		}
		dials.Wait()
	})
}
