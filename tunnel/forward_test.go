package tunnel_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// Whichever replica is asked, the dial comes to the agent.
func TestForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		r.at("b", &tunnel.Agent{Replica: "pod-1"})
		agent := r.beds["b"].s.Status().Clusters[0].Sessions[0].Agent
		for name, b := range r.beds {
			conn := b.echo()
			want := tunnel.Addr{Cluster: testCluster, Target: "echo:7", Agent: agent, Replica: "pod-1"}
			if name != "b" {
				want.Peer = "b"
			}
			if got := conn.RemoteAddr(); got != want {
				t.Errorf("by %s: got %v, want %v", name, got, want)
			}
			conn.Close()
		}
	})
}

// What a forwarded dial that fails is to its caller: the same as a local one.
func TestForwardErrors(t *testing.T) {
	for _, tt := range dialErrors {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "b")
				r.members.set("a:1", "b:1")
				a := r.serve(&tunnel.Server{Name: "a", AllowDial: forbid})
				r.mesh()
				targets := testTargets()
				targets.Resolver = &targettest.Network{Hosts: map[string]string{"x": "192.0.2.1", "forbidden": "192.0.2.1", "echo": "192.0.2.1"}}
				r.at("b", &tunnel.Agent{Targets: targets})
				busy := a.echo()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.canceled {
					cancel()
				}
				dial := func(b *bed) error {
					conn, err := b.s.Dialer(orString(tt.cluster, testCluster)).DialContext(ctx, orString(tt.network, "tcp"), tt.target)
					if conn != nil {
						t.Fatal("got a connection")
					}
					return err
				}
				err := dial(a)
				var e *tunnel.Error
				if !errors.As(err, &e) || e.Code != tt.code || e.Addr != tt.target || e.Op != "dial" {
					t.Errorf("got %v, want code %v", err, tt.code)
				}
				if tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("got %v, want to find %v in it", err, tt.is)
				}
				if tt.code != tunnel.CodeForbidden {
					if local := dial(r.beds["b"]); local.Error() != err.Error() {
						t.Errorf("got %q, want what it is without a hop: %q", err, local)
					}
				}
				checkEcho(t, busy)
				busy.Close()
			})
		})
	}
}

// The replica that is asked has the say: no other one hears of a dial that it
// forbids.
func TestForbiddenAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var forwarded atomic.Int32
		r := newReplicas(t)
		r.members.set("a:1", "b:1")
		a := r.serve(&tunnel.Server{Name: "a", AllowDial: forbid, Hooks: tunnel.Hooks{
			Forwarded: func(string, time.Duration, error) { forwarded.Add(1) },
		}})
		// That b forbids all is not asked.
		r.serve(&tunnel.Server{Name: "b", AllowDial: func(context.Context, string, string, string) error { return errForbidden }})
		r.mesh()
		r.at("b", &tunnel.Agent{})
		before := row(a.s, "b").Status.Clusters[0].Sessions[0].Dials
		if _, err := a.dial("forbidden:7"); codeOf(err) != tunnel.CodeForbidden {
			t.Errorf("got %v, want forbidden", err)
		}
		if n := forwarded.Load(); n != 0 {
			t.Errorf("got %d dials that were forwarded, want none", n)
		}
		a.echo().Close()
		if after := row(a.s, "b").Status.Clusters[0].Sessions[0].Dials; after != before+1 || forwarded.Load() != 1 {
			t.Errorf("got %d dials and %d forwarded, want one of each", after-before, forwarded.Load())
		}
	})
}

// A target is another machine's API server to each agent, and one of them is starting:
// the dial comes to another agent, here or at another replica.
func TestRefusedElsewhere(t *testing.T) {
	for _, where := range []string{"a", "b"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "a", "b")
				r.mesh()
				starting, serving := testTargets(), testTargets()
				starting.Aliases, serving.Aliases = map[string]string{"api:443": "x:1"}, map[string]string{"api:443": "x:7"}
				r.at("a", &tunnel.Agent{Targets: starting})
				r.at(where, &tunnel.Agent{Targets: serving})
				for range 5 {
					conn, err := r.beds["a"].dial("api:443")
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close() // the agent that is starting has the fewest streams
					checkEcho(t, conn)
				}
			})
		})
	}
}

// A target that refuses everywhere is asked for at three agents, and at no more.
func TestRefusedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		for range 5 {
			b.agent(&tunnel.Agent{})
		}
		if _, err := b.dial("x:1"); codeOf(err) != tunnel.CodeRefused {
			t.Errorf("got %v, want it refused", err)
		}
		var dials uint64
		for _, s := range b.sessions() {
			dials += s.Dials
		}
		if dials != 3 {
			t.Errorf("got %d dials, want 3", dials)
		}
	})
}

// A dial comes to an agent that has connected elsewhere as soon as that replica has said
// so, whatever was found before; and one hop is the most.
func TestForwardFindsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		a := r.beds["a"]
		if _, err := a.dial("echo:7"); codeOf(err) != tunnel.CodeNoAgent {
			t.Fatalf("got %v, want no agent", err)
		}
		began := time.Now()
		first := r.at("b", &tunnel.Agent{})
		synctest.Wait()
		a.echo().Close()
		r.at("c", &tunnel.Agent{})
		first.stop()
		a.echo().Close() // b was remembered
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v, want no wait", took)
		}
	})
}

// The replica that says that it has the agent has lost it when it is to dial: the
// others are asked again, since one of them has it now.
func TestForwardAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		a := r.beds["a"]
		first := r.at("b", &tunnel.Agent{})
		// What a asks or sends b takes a second.
		r.link("b:1").Set(linktest.Config{Up: linktest.Direction{Delay: time.Second}})
		before := a.s.PeerStreams()
		dialed := make(chan net.Conn, 1)
		go func() {
			conn, err := a.dial("echo:7")
			if err != nil {
				t.Errorf("got %v, want the replica where the agent is now", err)
			}
			dialed <- conn
		}()
		time.Sleep(1500 * time.Millisecond)
		if n := a.s.PeerStreams() - before; n != 3 {
			t.Fatalf("got %d streams to peers, want two questions and the dial that b was to do", n)
		}
		first.stop()
		r.at("c", &tunnel.Agent{})
		if conn := <-dialed; conn != nil {
			checkEcho(t, conn)
			conn.Close()
		}
	})
}

// Where an agent was found is remembered for a while: the next dial asks
// nobody.
func TestForwardRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		a := r.beds["a"]
		for i, step := range []struct {
			pause time.Duration
			asks  bool
		}{{0, true}, {0, false}, {9 * time.Second, false}, {2 * time.Second, true}} {
			time.Sleep(step.pause)
			before := a.s.PeerStreams()
			a.echo().Close()
			// One is the forward's. A question may be given up before it is sent.
			if got := a.s.PeerStreams() - before; got > 1 != step.asks || got == 0 {
				t.Errorf("dial %d: got %d streams to peers, want questions: %t", i, got, step.asks)
			}
		}
	})
}

// A dial that is given up ends on the other replica too.
func TestForwardedDialCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		a := r.beds["a"]
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.s.Dialer(testCluster).DialContext(ctx, "tcp", "x:3"); codeOf(err) != tunnel.CodeCanceled {
				t.Errorf("got %v, want canceled", err)
			}
		})
		synctest.Wait()
		if n := r.beds["b"].sessions()[0].Streams; n != 1 {
			t.Fatalf("got %d streams, want the dial's", n)
		}
		cancel()
		wg.Wait()
		synctest.Wait()
		if n := r.beds["b"].sessions()[0].Streams; n != 0 {
			t.Errorf("got %d streams after the dial was given up, want none", n)
		}
	})
}
