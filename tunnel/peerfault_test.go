package tunnel_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/tunnel"
)

// A replica that hangs holds up no dial whose cluster another one has, and the
// answer that there is no agent until it is found out, and for two seconds then.
func TestPeerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		a := r.beds["a"]
		r.hang("c")
		began := time.Now()
		a.echo().Close()
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("a dial took %v, want no wait for the one that hangs", took)
		}
		for _, want := range []time.Duration{5 * time.Second, 2 * time.Second, 2 * time.Second} {
			began = time.Now()
			_, err := a.s.Dialer("default/other").DialContext(t.Context(), "tcp", "x:7")
			if took := time.Since(began); codeOf(err) != tunnel.CodeNoAgent || took < time.Second || took > want {
				t.Errorf("got %v after %v, want no agent after %v", err, took, want)
			}
			if !strings.Contains(err.Error(), "1 of the other replicas did not answer") {
				t.Errorf("got %q, want it to say who did not answer", err)
			}
		}
		time.Sleep(time.Minute) // it is dead, and comes back
		r.mesh()
		began = time.Now()
		if _, err := a.s.Dialer("default/other").DialContext(t.Context(), "tcp", "x:7"); time.Since(began) > 100*time.Millisecond {
			t.Errorf("got %v after %v, want no wait", err, time.Since(began))
		}
	})
}

// A replica that had the agent, and hangs when it is to dial, is left for
// another one.
func TestPeerHangsWithTheDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		a := r.beds["a"]
		a.echo().Close() // b is remembered
		r.at("c", &tunnel.Agent{})
		r.hang("b")
		began := time.Now()
		a.echo().Close()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("it took %v, want no more than it takes to find out", took)
		}
		began = time.Now()
		a.echo().Close()
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the next took %v, want no wait", took)
		}
	})
}

// A replica that was found to hang is not remembered.
func TestHangingPeerIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		a := r.beds["a"]
		a.echo().Close()
		time.Sleep(2 * time.Second)
		r.hang("b")
		for _, most := range []time.Duration{8 * time.Second, 2 * time.Second} {
			began := time.Now()
			_, err := a.dial("echo:7")
			if took := time.Since(began); err == nil || took > most {
				t.Errorf("got %v after %v, want an error in %v", err, took, most)
			}
		}
	})
}

// staleAgent is connected to a replica that does not know yet that it is gone.
func (r *replicas) staleAgent(name string) {
	r.t.Helper()
	link := newTestLink(r.t)
	once := make(chan struct{}, 2) // the enrolment and the session
	r.at(name, &tunnel.Agent{Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
		select {
		case once <- struct{}{}:
		case <-ctx.Done(): // it does not come back
			return nil, ctx.Err()
		}
		conn, err := r.w.Dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return link.join(conn), nil
	}})
	link.hang()
}

// Two replicas believe in an old session, and one has the agent: whoever is
// asked, the dial comes to it as soon as it is found out, and at once from then
// on.
func TestOldSessions(t *testing.T) {
	for _, asked := range []string{"a", "b", "c", "d"} {
		t.Run(asked, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "a", "b", "c", "d")
				r.mesh()
				r.staleAgent("a")
				r.staleAgent("b")
				r.at("c", &tunnel.Agent{})
				time.Sleep(2 * time.Second) // the last that was heard of them is old
				began := time.Now()
				r.beds[asked].echo().Close()
				// Finding out takes a replica 5 s, and there are two of them.
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("it took %v, want no more than it takes to find out", took)
				}
				for range 3 {
					began = time.Now()
					r.beds[asked].echo().Close()
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("a later one took %v, want no wait", took)
					}
				}
			})
		})
	}
}

// An old session that is all there is gets its chance, whoever is asked and
// whatever is known of it: its agent may be slow.
func TestOldSessionAlone(t *testing.T) {
	for _, asked := range []string{"a", "b"} {
		t.Run(asked, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "a", "b")
				r.mesh()
				r.staleAgent("a")
				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
					defer cancel()
					_, err := r.beds[asked].s.Dialer(testCluster).DialContext(ctx, "tcp", "echo:7")
					if codeOf(err) != tunnel.CodeTimeout {
						t.Errorf("got %v, want to wait for the agent", err)
					}
				}
			})
		})
	}
}

// A replica whose agent does not answer is not taken, though it answers first.
func TestDoubtfulPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		r.staleAgent("a")
		r.at("c", &tunnel.Agent{})
		time.Sleep(2 * time.Second)
		r.beds["a"].echo().Close() // a finds out
		r.link("c:1").Set(linktest.Config{Up: linktest.Direction{Delay: 50 * time.Millisecond}})
		began := time.Now()
		r.beds["b"].echo().Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v, want the one that answers", took)
		}
	})
}

// A replica that dies in the middle of a forward cuts it, and the next dial
// comes to another one.
func TestPeerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		a := r.beds["a"]
		busy := a.echo()
		r.at("c", &tunnel.Agent{})
		r.beds["b"].s.Close()
		if _, err := busy.Read(make([]byte, 1)); err == nil {
			t.Error("got no error of a stream whose replica is gone")
		}
		a.echo().Close()
	})
}

// A replica that was started again is connected as soon as it shows up here, and
// not when it would be tried again: until then its agents could not be reached.
func TestPeerComesBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		silent bool // it does not connect to others
		want   bool
	}{
		{"it connects", false, true},
		{"it does not", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "a", "b", "c")
				r.mesh()
				a := r.beds["a"]
				r.beds["b"].s.Close()
				time.Sleep(time.Minute)
				if row(a.s, "b").Connected {
					t.Fatal("b is there")
				}
				s := &tunnel.Server{Name: "b"}
				if tt.silent {
					s.Peers = &members{}
				}
				r.serve(s)
				synctest.Wait()
				if got := row(a.s, "b").Connected; got != tt.want {
					t.Errorf("got b connected: %t, want %t", got, tt.want)
				}
				for i := range 3 { // another replica is no reason
					r.serve(&tunnel.Server{Name: "other" + strconv.Itoa(i), Peers: &members{all: []string{"a:1"}}})
				}
				synctest.Wait()
				if got := row(a.s, "b").Connected; got != tt.want {
					t.Errorf("got b connected when another came: %t, want %t", got, tt.want)
				}
			})
		})
	}
}
