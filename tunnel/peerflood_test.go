package tunnel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/test/targettest"
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

// All sessions from one address ask 10,000 times at once, and then 2,000 times a second.
func TestPeersArePaced(t *testing.T) {
	ask := rawMessage(kindAsk, uint16(7), []byte(testCluster))
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{Name: "a"})
		c, err := tunnel.ServerCredentials(b.s.Authority)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, name := range []string{"b", "c"} {
			for session, i := b.greetedPeer(c, name), 0; i < 6000; i++ {
				st, err := session.Open(t.Context(), ask)
				if err != nil {
					t.Fatal(err)
				}
				if kind, _, err := readRaw(st); kind != 65 || err != nil {
					t.Fatalf("got %d, %v, want HAVE", kind, err)
				}
				st.Close()
			}
		}
		if took := time.Since(began); took < 900*time.Millisecond || took > 2*time.Second {
			t.Errorf("12,000 answers took %v, want a second", took)
		}
	})
}

// A replica that takes no answers is not read any more after few requests: each costs memory until
// its answer is on its way.
func TestPeerTakesNoAnswers(t *testing.T) {
	for name, request := range map[string][]byte{
		"asks":     rawMessage(kindAsk, uint16(7), []byte(testCluster)),
		"forwards": rawMessage(66, uint16(7), []byte("no/agent"), uint16(6), []byte("tcp"), uint16(5), []byte("a:1")),
		"mistakes": rawMessage(99),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				c, err := tunnel.ServerCredentials(b.s.Authority)
				if err != nil {
					t.Fatal(err)
				}
				wire := b.wire()
				defer wire.Close()
				carrier, err := tunnel.RawPeerCarrier(t.Context(), wire, c)
				if err != nil {
					t.Fatal(err)
				}
				open := func(id uint32, first []byte) error {
					frame := []byte{0, 0, 0, 5} // data, SYN and FIN
					if id == 1 {
						frame[3] = 1
					}
					frame = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(frame, id), uint32(len(first)))
					carrier.SetWriteDeadline(time.Now().Add(time.Second))
					_, err := carrier.Write(append(frame, first...))
					return err
				}
				if err := open(1, rawPeerHello("b")); err != nil {
					t.Fatal(err)
				}
				n := 0
				for ; n < 20_000 && open(uint32(2*n+3), request) == nil; n++ {
				}
				if n > 10_000 {
					t.Errorf("%d requests were read whose answers nobody takes", n)
				}
			})
		})
	}
}

// A replica that revokes what never was fills no memory here, and what is told of after it counts.
func TestPeerRevokesWhatNeverWas(t *testing.T) {
	b := newBed(t, &tunnel.Server{})
	c, err := tunnel.ServerCredentials(b.s.Authority)
	if err != nil {
		t.Fatal(err)
	}
	session := b.rawPeer(c)
	control, err := session.Open(t.Context(), rawPeerHello("b"))
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, control)
	ended := make(chan error, 1)
	b.agent(&tunnel.Agent{Hooks: tunnel.AgentHooks{Disconnected: func(_ string, err error) { ended <- err }}})
	for i := range 2 * tunnel.MaxRevoked {
		if _, err := control.Write(rawMessage(68, uint16(7), fmt.Appendf(nil, "no/c%d", i), uint16(12), []byte("a"))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := control.Write(rawMessage(68, uint16(7), []byte(testCluster), uint16(14), uint64(time.Now().Add(time.Minute).UnixMilli()))); err != nil {
		t.Fatal(err)
	}
	<-ended
	if n := b.s.RevocationsKept(); n != tunnel.MaxRevoked {
		t.Errorf("got %d revocations, want %d", n, tunnel.MaxRevoked)
	}
}

// A replica that revokes a cluster costs no look at the sessions of the others.
func TestRevokeLooksAtItsClusterOnly(t *testing.T) {
	if one, many := tunnel.RevokeAllocs(1), tunnel.RevokeAllocs(10_000); many > one {
		t.Errorf("got %v allocations with 10,000 clusters, want %v as with one", many, one)
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
			r.serve(&tunnel.Server{Name: name, MaxStreams: 2 * n})
		}
		r.mesh()
		r.at("b", &tunnel.Agent{MaxStreams: 2 * n})
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

// forward is what a replica asks with for a dial of its caller with this number.
func forward(share uint64, early int) []byte {
	m := rawMessage(kindForward, uint16(7), []byte(testCluster), uint16(6), []byte("tcp"), uint16(5), []byte("target:9"),
		uint16(20), share, uint16(21), uint64(early))
	return append(m, make([]byte, early)...)
}

// TestPeerBudget: what a replica has wait here is in the Budget, its dials that are not answered
// included, and all its callers of a cluster are one holder.
func TestPeerBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, bytes = 200, 4 << 20
		ends := make(chan net.Conn, streams+1)
		b := newBed(t, &tunnel.Server{Name: "a", Budget: &tunnel.Budget{Bytes: bytes}})
		b.agent(&tunnel.Agent{Targets: lineTargets(ends)})
		c, err := tunnel.ServerCredentials(b.s.Authority)
		if err != nil {
			t.Fatal(err)
		}
		near, err := b.s.Dialer(testCluster).DialContext(tunnel.WithCaller(t.Context(), "ann"), "tcp", "target:9")
		if err != nil {
			t.Fatal(err)
		}
		(<-ends).Write(make([]byte, 200<<10))
		hostile := b.greetedPeer(c, "b")
		for i := range streams {
			if _, err := hostile.Open(t.Context(), forward(uint64(i+1), 0)); err != nil {
				t.Fatal(err)
			}
			end := <-ends
			go end.Write(make([]byte, 1<<20))
			time.Sleep(100 * time.Millisecond)
		}
		if held := budget.Held(b.s.Budget); held > bytes {
			t.Errorf("%d bytes wait, want %d at most", held, bytes)
		}
		if _, err := io.ReadFull(near, make([]byte, 200<<10)); err != nil {
			t.Errorf("the caller of this replica: %v", err)
		}
	})
}

// Whatever an agent has sent that nobody reads, nothing of it is held when its session has ended.
func TestEndedSessionsHoldNothing(t *testing.T) {
	for name, send := range map[string]struct{ hello, more []byte }{
		"a HELLO that is too long":   {rawMessage(1, uint16(3), uint64(1), uint16(4), make([]byte, 60<<10)), nil},
		"a flood":                    {rawHello(), bytes.Repeat(rawMessage(99), 20_000)},
		"a message that is too long": {rawHello(), rawMessage(5, uint16(4), make([]byte, 60<<10))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{Budget: &tunnel.Budget{Bytes: 4 << 20}})
				_, session := b.rawSession(b.enrolled())
				control, err := session.Open(t.Context(), send.hello)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				control.Write(send.more)
				time.Sleep(time.Minute)
				session.Close()
				time.Sleep(time.Second)
				if held := budget.Held(b.s.Budget); held > 0 {
					t.Errorf("%d bytes are held", held)
				}
			})
		})
	}
}

// TestPeerPendingDials: dials for which no agent has an answer yet hold little.
func TestPeerPendingDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, bytes = 1000, 4 << 20
		b := newBed(t, &tunnel.Server{Name: "a", Budget: &tunnel.Budget{Bytes: bytes}})
		n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		b.agent(&tunnel.Agent{MaxStreams: streams, Targets: *targetsThrough(n, tunnel.Targets{Allow: []string{"*:9"}})})
		c, err := tunnel.ServerCredentials(b.s.Authority)
		if err != nil {
			t.Fatal(err)
		}
		hostile, before := b.greetedPeer(c, "b"), runtime.NumGoroutine()
		for i := range streams {
			if _, err := hostile.Open(t.Context(), forward(uint64(i%2), i%2*32<<10)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if held := budget.Held(b.s.Budget); held > bytes {
			t.Errorf("%d bytes wait, want %d at most", held, bytes)
		}
		if n := runtime.NumGoroutine() - before; n > streams {
			t.Errorf("%d goroutines wait for %d dials", n, streams)
		}
	})
}
