package tunnel_test

import (
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// An agent that is run again reads its field Targets again; SetTargets counts from then on,
// and wrong targets change nothing.
func TestSetTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		only := func(pattern string) tunnel.Targets {
			n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: dialTest}
			return *targetsThrough(n, tunnel.Targets{Allow: []string{pattern}})
		}
		check := func(target string, allowed bool) {
			t.Helper()
			conn, err := b.dial(target)
			if err == nil {
				conn.Close()
			}
			if allowed != (err == nil) || !allowed && codeOf(err) != tunnel.CodeDenied {
				t.Errorf("%s: got %v, want it allowed: %t", target, err, allowed)
			}
		}
		a := &tunnel.Agent{Targets: only("a:7"), Credentials: &tunnel.MemoryCredentials{}}
		running := b.agent(a)
		check("a:7", true)
		running.stop()
		synctest.Wait()
		a.Targets = only("b:7")
		b.agent(a)
		check("a:7", false)
		check("b:7", true)
		if err := a.SetTargets(only("nonsense")); codeOf(err) != tunnel.CodeConfig {
			t.Errorf("got %v of a wrong pattern", err)
		}
		check("b:7", true)
		if err := a.SetTargets(only("c:7")); err != nil {
			t.Fatal(err)
		}
		check("b:7", false)
		check("c:7", true)
	})
}
