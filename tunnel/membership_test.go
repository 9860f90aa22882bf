package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// All that the names of a list stand for are replicas, at any time; a name that
// can't be looked up is what it was, or itself.
func TestStaticPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := map[string][]string{"peers.example": {"192.0.2.2", "192.0.2.1"}, "six.example": {"2001:db8::1"}}
		var mu sync.Mutex // guards what both goroutines use
		lookups := 0
		lookup := func(_ context.Context, host string) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			lookups++
			if hosts[host] == nil {
				return nil, errors.New("no such host")
			}
			return hosts[host], nil
		}
		var sets [][]string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			list := tunnel.StaticPeers{"peers.example:8443", "six.example:1", "192.0.2.9:1", "192.0.2.1:8443", "wss://peers.example/x", "gone.example:1", "odd"}
			done <- list.WatchWith(ctx, func(all []string) {
				mu.Lock()
				defer mu.Unlock()
				sets = append(sets, all)
			}, lookup)
		}()
		others := []string{"192.0.2.9:1", "[2001:db8::1]:1", "gone.example:1", "odd", "wss://peers.example/x"}
		with := func(more ...string) []string {
			all := append(more, others...)
			slices.Sort(all)
			return all
		}
		steps := []struct {
			name   string
			change func()
			want   []string
		}{
			{"at first", func() {}, with("192.0.2.1:8443", "192.0.2.2:8443")},
			{"one more", func() { hosts["peers.example"] = []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} }, with("192.0.2.1:8443", "192.0.2.2:8443", "192.0.2.3:8443")},
			{"no answer", func() { hosts["peers.example"] = nil }, nil},
			{"others", func() { hosts["peers.example"] = []string{"192.0.2.4"} }, with("192.0.2.1:8443", "192.0.2.4:8443")},
		}
		for i, step := range steps {
			before := 0
			if i > 0 {
				mu.Lock()
				step.change()
				before = len(sets)
				mu.Unlock()
				time.Sleep(10 * time.Second)
			}
			synctest.Wait()
			mu.Lock()
			got := sets[before:]
			mu.Unlock()
			switch {
			case step.want == nil && len(got) != 0:
				t.Errorf("%s: got %q, want no change", step.name, got)
			case step.want != nil && (len(got) != 1 || !slices.Equal(got[0], step.want)):
				t.Errorf("%s: got %q, want %q", step.name, got, step.want)
			}
		}
		if lookups != 3*len(steps) {
			t.Errorf("got %d lookups, want one of each name in 10 s", lookups)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's end", err)
		}
	})
}

// A fleet's status comes whole, however large it is, and says what is where.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.members.set("a:1", "b:1", "nobody:1")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		const clusters = 4000
		r.beds["b"].s.AddClusters(clusters)
		fleet := r.beds["a"].s.Fleet(t.Context())
		if len(fleet) != 3 {
			t.Fatalf("got %d rows, want 3", len(fleet))
		}
		if self := fleet[0]; !self.Self || self.Name != "a" || self.Address != "" || self.Since.IsZero() || len(self.Status.Clusters) != 0 {
			t.Errorf("got %+v, want a itself without clusters", self)
		}
		if nobody := fleet[1]; nobody.Name != "" || nobody.Connected || nobody.Address != "nobody:1" || nobody.LastError == "" {
			t.Errorf("got %+v, want an error", nobody)
		}
		b := fleet[2]
		if b.Name != "b" || b.Address != "b:1" || !b.Connected || b.Since.IsZero() || len(b.Status.Clusters) != clusters+1 {
			t.Errorf("got %s, %q, %t, %v and %d clusters, want b and %d", b.Name, b.Address, b.Connected, b.Since, len(b.Status.Clusters), clusters+1)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got := r.beds["a"].s.Fleet(ctx); len(got) != 3 || got[2].LastError == "" {
			t.Errorf("got %+v after the context's end, want an error", got)
		}
	})
}

// A replica that hangs is left out of the fleet's status after five seconds.
func TestFleetHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		r.hang("c")
		began := time.Now()
		fleet := r.beds["a"].s.Fleet(t.Context())
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v, want 5 s at most", took)
		}
		if b, c := fleet[1], fleet[2]; b.LastError != "" || !b.Status.Ready || c.LastError == "" {
			t.Errorf("got %s and %s, want the status of b alone", fmt.Sprint(b), fmt.Sprint(c))
		}
	})
}
