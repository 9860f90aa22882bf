package tunnel_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// A replica that has said that it has no agent is asked again only after a while, when
// an agent has come, or when a replica comes or goes. A raw replica counts the questions.
func TestAbsenceIsRemembered(t *testing.T) {
	for _, tt := range []struct {
		name    string
		between func(t *testing.T, r *replicas, control *mux.Stream)
		asks    int32 // by the last dial
	}{
		{"at once", func(*testing.T, *replicas, *mux.Stream) {}, 0},
		{"nine seconds later", func(*testing.T, *replicas, *mux.Stream) { time.Sleep(9 * time.Second) }, 0},
		{"eleven seconds later", func(*testing.T, *replicas, *mux.Stream) { time.Sleep(11 * time.Second) }, 1},
		{"an agent has come", func(_ *testing.T, _ *replicas, control *mux.Stream) {
			control.Write(rawMessage(69, uint16(7), []byte(testCluster)))
		}, 1},
		{"one of another cluster", func(_ *testing.T, _ *replicas, control *mux.Stream) {
			control.Write(rawMessage(69, uint16(7), []byte("default/other")))
		}, 0},
		{"a replica has come", func(_ *testing.T, r *replicas, _ *mux.Stream) {
			r.serve(&tunnel.Server{Name: "c"})
			r.members.set("a:1", "b:1", "c:1")
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t)
				r.members.set("a:1", "b:1")
				var asks atomic.Int32
				controls := r.raw("b", func(kind uint16, st *mux.Stream, _ *mux.Session) {
					if kind == kindAsk {
						asks.Add(1)
						st.Write(rawMessage(65, uint16(1), uint64(42)))
					}
				})
				a := r.serve(&tunnel.Server{Name: "a"})
				control := <-controls
				time.Sleep(time.Second)
				dial := func() int32 {
					before := asks.Load()
					if _, err := a.dial("echo:7"); codeOf(err) != tunnel.CodeNoAgent {
						t.Errorf("got %v, want no agent", err)
					}
					return asks.Load() - before
				}
				if n := dial(); n != 1 {
					t.Fatalf("the first dial asked %d times", n)
				}
				tt.between(t, r, control)
				synctest.Wait()
				if n := dial(); n != tt.asks {
					t.Errorf("the second dial asked %d times, want %d", n, tt.asks)
				}
			})
		})
	}
}

// A dial that follows the arrival of an agent finds it, whichever replica said before
// that there was none.
func TestArrivalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		for i := range 3 {
			for _, b := range r.beds {
				if _, err := b.dial("echo:7"); codeOf(err) != tunnel.CodeNoAgent {
					t.Errorf("got %v, want no agent", err)
				}
			}
			agent := r.at("b", &tunnel.Agent{})
			synctest.Wait()
			for name, b := range r.beds {
				conn, err := b.dial("echo:7")
				if err != nil {
					t.Fatalf("round %d, by %s: %v", i, name, err)
				}
				conn.Close()
			}
			agent.stop()
			time.Sleep(time.Minute)
		}
	})
}

// What agents hear of the servers does not grow with their number.
func TestAnnouncedAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 12
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("replica-", i))
		}
		r := newReplicas(t, names...)
		r.mesh()
		b := r.beds["replica-0"]
		_, session := b.rawSessionAt("replica-0:1", b.enrolledAt("replica-0:1"))
		control := open(t, session, rawHello())
		heard := make(chan []string, 1000)
		go func() {
			defer close(heard)
			for {
				_, _, servers, err := readServers(control)
				if err != nil {
					return
				}
				heard <- servers
			}
		}()
		if first := <-heard; len(first) != 4 || first[0] != "replica-0" {
			t.Errorf("WELCOME has %q, want the server's name and three others", first)
		}
		for _, name := range names[1:] { // a rolling restart
			r.beds[name].s.Close()
			time.Sleep(20 * time.Second)
			r.serve(&tunnel.Server{Name: name})
			r.mesh()
		}
		session.Close()
		messages := 0
		for servers := range heard {
			messages++
			if len(servers) != 4 || servers[0] != "replica-0" || len(slices.Compact(servers)) != 4 {
				t.Errorf("heard %q", servers)
			}
		}
		if messages == 0 || messages > 4 {
			t.Errorf("heard of the servers %d times in a rolling restart of %d, want once for each name that was heard, or less", messages, n)
		}
	})
}
