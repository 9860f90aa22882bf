package tunnel_test

import (
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A replica that reaches no other one, and has lost its agents, can serve nobody.
func TestCutOffReplicaIsNotReady(t *testing.T) {
	for _, test := range []struct {
		name   string
		agent  bool  // one was connected to a
		err    error // of dials between the replicas, once they are cut; nil: none
		listed bool  // Peers still names the other one
		ready  int
		text   string
	}{
		{"cut off", true, syscall.EHOSTUNREACH, true, 503, "cut off: no agent is connected, and the replica at b:1 can't be asked: "},
		{"the other one is gone", true, syscall.EHOSTUNREACH, false, 200, "ok"},
		{"the other one's host answers", true, syscall.ECONNREFUSED, true, 200, "ok"},
		{"no agent came yet", false, syscall.EHOSTUNREACH, true, 200, "ok"},
		{"nothing is cut", true, nil, true, 200, "ok"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t)
				r.members.all = []string{"a:1", "b:1"}
				var cut atomic.Bool
				for _, name := range []string{"a", "b"} {
					r.beds[name] = newBedAt(t, &tunnel.Server{Name: name, Authority: r.Authority, Peers: r.members, PeerDial: func(ctx context.Context, network, address string) (net.Conn, error) {
						if cut.Load() && address != name+":1" {
							return nil, &net.OpError{Op: "dial", Net: "tcp", Err: test.err}
						}
						return r.dialPeer(ctx, network, address)
					}}, r.w, name+":1")
				}
				r.mesh()
				a := r.beds["a"]
				h := a.s.StatusHandler()
				var one *agent
				if test.agent {
					one = r.at("a", &tunnel.Agent{})
				}
				checkHTTP(t, h, "GET", "/readyz", 200)
				if one != nil {
					one.stop()
				}
				if test.err != nil {
					cut.Store(true)
					r.hang("a")
					r.hang("b")
				}
				if !test.listed {
					r.members.set("a:1")
				}
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				if got := checkHTTP(t, h, "GET", "/readyz", test.ready); !strings.Contains(got, test.text) {
					t.Errorf("got %q, want %q", got, test.text)
				}
				if test.ready == 200 {
					return
				}
				for range 3 { // it goes on saying so
					if _, err := a.dial("echo:1"); err == nil || !strings.Contains(err.Error(), "no agent is connected: the replica at b:1 can't be asked") {
						t.Errorf("got %v, want the replica that can't be asked", err)
					}
					time.Sleep(time.Minute)
				}
				// Agents behind a load balancer can only come back while it is ready.
				readyFor := 0
				for range 10 * 60 {
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil)); w.Code == 200 {
						readyFor++
					}
					time.Sleep(time.Second)
				}
				if readyFor < 110 || readyFor > 130 {
					t.Errorf("got ready for %d seconds in ten minutes, want 2 minutes", readyFor)
				}
				cut.Store(false)
				r.mesh()
				checkHTTP(t, h, "GET", "/readyz", 200)
			})
		})
	}
}
