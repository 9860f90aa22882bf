package tunnel_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Many agents lose one of three replicas, then all: they come back spread, in
// the time that is promised, and settle on two replicas each.
func TestManyAgentsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 100
		m := newMesh(t, "a", "b", "c")
		var all []*agent
		for range agents {
			all = append(all, m.agent(&tunnel.Agent{}))
		}
		ready := func(sessions int) bool {
			return !slices.ContainsFunc(all, func(a *agent) bool { return len(serving(a)) < sessions })
		}
		until := func(sessions int) time.Duration {
			t.Helper()
			began := time.Now()
			for !ready(sessions) {
				if time.Sleep(100 * time.Millisecond); time.Since(began) > 10*time.Minute {
					t.Fatalf("some agents have less than %d sessions", sessions)
				}
			}
			return time.Since(began)
		}
		spread := func(what string, most int) {
			t.Helper()
			before := len(m.wires.times())
			one := until(1)
			two := one + until(2)
			busiest := 0
			dials := m.wires.times()[before:]
			for i, at := range dials {
				n, _ := slices.BinarySearchFunc(dials, at.Add(time.Second), time.Time.Compare)
				busiest = max(busiest, n-i)
			}
			t.Logf("%s: all had one session after %v, two after %v, by %d dials, %d in the busiest second",
				what, one, two, len(dials), busiest)
			if one > 30*time.Second || busiest > most {
				t.Errorf("%s: all had one session after %v, with %d dials in one second, want 30 s and %d", what, one, busiest, most)
			}
		}
		until(2)
		time.Sleep(2 * time.Minute)
		m.kill("a")
		m.serve("d", &tunnel.Server{})
		spread("one of three restarted", agents*3/4)
		time.Sleep(2 * time.Minute)
		for _, name := range m.names() {
			m.kill(name)
			m.serve(name, &tunnel.Server{})
		}
		spread("all restarted", agents)
	})
}
