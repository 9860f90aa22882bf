package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// redundantAgents are the pods of one Deployment, on several nodes.
type redundantAgents struct {
	*agentBed
	w         *workers
	namespace string
	target    string
}

// TestRedundantAgents: the pods of a Deployment are one agent. While a hundred dials a
// second go through them, they are killed, silenced, replaced and drained, and no dial
// fails. CAUSEWAY_E2E_KILLS=1 kills one every 20 s for ten minutes; without it, it is one
// every 2 s for 40 s.
func TestRedundantAgents(t *testing.T) {
	t.Parallel() // waits much
	d := startDeploying(t, "redundant")
	w := d.startWorkers(t, "one", "two", "three")
	defer w.stop()
	b := d.newAgentBed(t)
	l, err := d.Node.Listen(net.JoinHostPort(d.Kube.Host(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	target := proxytest.Serve(l, func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) })
	t.Cleanup(target.Close)
	r := &redundantAgents{agentBed: b, w: w, namespace: "redundant", target: target.Addr()}
	every, lasts := 2*time.Second, 40*time.Second
	if os.Getenv("CAUSEWAY_E2E_KILLS") != "" {
		every, lasts = 20*time.Second, 10*time.Minute
	}
	t.Run("together", r.testTogether)
	b.apply(t, r.namespace, b.enroll(t, r.namespace, "--server", b.address, "--allow", r.target))
	r.connected(t, b.server, r.namespace, 2)
	for _, part := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"kills", func(t *testing.T) { r.testKills(t, every, lasts) }},
		{"silence", r.testSilence},
		{"rolling update", r.testUpdate},
		{"drain", r.testDrain},
	} {
		t.Run(part.name, func(t *testing.T) {
			dials := startDials(r.dial)
			defer dials.stop(t)
			part.run(t)
		})
	}
}

// connected waits until so many pods are connected, all as one agent, and returns their
// sessions.
func (r *redundantAgents) connected(t *testing.T, server *tunnel.Server, namespace string, want int) (sessions []tunnel.SessionInfo) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d connected agents", want), func(context.Context) error {
		replicas, agents := map[string]bool{}, map[string]bool{}
		sessions = nil
		for _, c := range server.Status().Clusters {
			for _, s := range c.Sessions {
				if c.Cluster == "agents/"+namespace && !s.Draining {
					replicas[s.Replica], agents[s.Agent] = true, true
					sessions = append(sessions, s)
				}
			}
		}
		if len(replicas) != want || len(agents) != 1 || len(sessions) != want {
			return fmt.Errorf("got %+v", sessions)
		}
		return nil
	})
	return sessions
}

// testTogether: five pods that start at once enrol with one token, renew together, and one
// that was stopped meanwhile goes on with what the others have saved.
func (r *redundantAgents) testTogether(t *testing.T) {
	const namespace = "together"
	server, address := r.serve(t, 20*time.Second)
	r.apply(t, namespace, r.enroll(t, namespace, "--server", address, "--replicas", "5"))
	first := r.connected(t, server, namespace, 5)
	if saved := r.saved(t.Context(), namespace); strings.Count(saved, "PRIVATE KEY") != 2 {
		t.Errorf("got %q in the Secret", saved)
	}
	stopped := r.w.all()[0]
	r.w.signal(t, stopped, syscall.SIGSTOP)
	before := map[string]time.Time{}
	for _, s := range first {
		before[s.Replica] = s.Expires
	}
	renewed := func(who ...tunnel.SessionInfo) {
		t.Helper()
		eventually(t, "later certificates", func(context.Context) error {
			for _, s := range r.connected(t, server, namespace, len(who)) {
				if !s.Expires.After(before[s.Replica]) {
					return fmt.Errorf("%s has %v", s.Replica, s.Expires)
				}
			}
			return nil
		})
	}
	others := slices.DeleteFunc(slices.Clone(first), func(s tunnel.SessionInfo) bool { return s.Replica == stopped.name })
	renewed(others...)
	r.w.signal(t, stopped, syscall.SIGCONT) // its certificate has ended
	renewed(first...)
	if log := r.w.log(stopped); strings.Count(log, "msg=enrolled") > 1 {
		t.Errorf("the agent with the old copy has enrolled again:\n%s", log)
	}
	r.d.kubectl(t, "", "-n", namespace, "scale", "deployment", "tunnel-agent", "--replicas=0")
	eventually(t, "the agents' end", func(context.Context) error {
		if n := len(r.w.all()); n > 0 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
}

// runningDials are a hundred a second.
type runningDials struct {
	cancel context.CancelFunc
	done   chan struct{}
	began  time.Time

	mu     sync.Mutex // guards the fields below
	took   []time.Duration
	failed []error
}

// startDials makes a hundred dials a second, until stop.
func startDials(dial func() error) *runningDials {
	ctx, cancel := context.WithCancel(context.Background())
	d := &runningDials{cancel: cancel, done: make(chan struct{}), began: time.Now()}
	go func() {
		defer close(d.done)
		var dials sync.WaitGroup
		defer dials.Wait()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				dials.Go(func() {
					began := time.Now()
					err := dial()
					d.note(time.Since(began), err)
				})
			}
		}
	}()
	return d
}

func (r *redundantAgents) dial() error {
	conn, err := r.server.Dialer("agents/"+r.namespace).DialContext(context.Background(), "tcp", r.target)
	if err == nil {
		conn.Close()
	}
	return err
}

func (d *runningDials) note(took time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.took = append(d.took, took)
	if err != nil {
		d.failed = append(d.failed, fmt.Errorf("after %v: %w", took, err))
	}
}

// stop waits for the end of the dials, all of which have to have worked.
func (d *runningDials) stop(t *testing.T) {
	t.Helper()
	d.cancel()
	<-d.done
	slices.Sort(d.took)
	at := func(part float64) time.Duration {
		return d.took[int(part*float64(len(d.took)-1))].Round(time.Millisecond)
	}
	slow, _ := slices.BinarySearch(d.took, time.Second)
	t.Logf("%d dials in %v: %d failed; median %v, 99%% within %v, longest %v, %d longer than 1 s",
		len(d.took), time.Since(d.began).Round(time.Second), len(d.failed), at(0.5), at(0.99), at(1), len(d.took)-slow)
	for _, err := range d.failed[:min(len(d.failed), 10)] {
		t.Error(err)
	}
	if len(d.failed) > 10 {
		t.Errorf("and %d more", len(d.failed)-10)
	}
}

// testKills kills one pod after the other, once its predecessor is back.
func (r *redundantAgents) testKills(t *testing.T, every, lasts time.Duration) {
	kills := 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < lasts; kills++ {
		<-tick.C
		sessions := r.connected(t, r.server, r.namespace, 2)
		victim := r.w.find(sessions[0].Replica) // the oldest
		r.w.signal(t, victim, syscall.SIGKILL)
		eventually(t, "the end of the killed agent's session", func(context.Context) error {
			for _, c := range r.server.Status().Clusters {
				if slices.ContainsFunc(c.Sessions, func(s tunnel.SessionInfo) bool { return s.Cluster == sessions[0].Cluster && s.ID == sessions[0].ID }) {
					return fmt.Errorf("it is there")
				}
			}
			return nil
		})
	}
	t.Logf("%d kills", kills)
}

// testSilence: the host of one pod sends and takes nothing any more, without a word. The
// dials that wait for it go elsewhere, and later ones do not ask it.
func (r *redundantAgents) testSilence(t *testing.T) {
	victim := r.w.find(r.connected(t, r.server, r.namespace, 2)[0].Replica)
	nft := func(rules string) {
		t.Helper()
		if _, err := victim.host.Run(t.Context(), bed.Command{Argv: []string{"nft", rules}}); err != nil {
			t.Fatal(err)
		}
	}
	nft("add table inet silent; add chain inet silent in { type filter hook input priority 0; policy drop; }; add chain inet silent out { type filter hook output priority 0; policy drop; }")
	r.connected(t, r.server, r.namespace, 1) // its session is given up
	nft("delete table inet silent")
	r.connected(t, r.server, r.namespace, 2)
}

// testUpdate: kubectl rolls the Deployment over.
func (r *redundantAgents) testUpdate(t *testing.T) {
	before := r.connected(t, r.server, r.namespace, 2)
	for n := range 3 {
		r.d.kubectl(t, "", "-n", r.namespace, "set", "env", "deployment", "tunnel-agent", fmt.Sprint("VERSION=", n))
		r.d.kubectl(t, "", "-n", r.namespace, "rollout", "status", "deployment", "tunnel-agent", "--timeout=2m")
	}
	after := r.connected(t, r.server, r.namespace, 2)
	for _, s := range after {
		if slices.ContainsFunc(before, func(old tunnel.SessionInfo) bool { return old.Replica == s.Replica }) {
			t.Errorf("%s is from before", s.Replica)
		}
	}
}

// testDrain: kubectl drains each node.
func (r *redundantAgents) testDrain(t *testing.T) {
	moved := 0
	for _, node := range r.w.nodes {
		for _, p := range r.w.all() {
			if p.node == node {
				moved++
			}
		}
		r.d.kubectl(t, "", "drain", node, "--timeout=2m")
		for _, p := range r.w.all() {
			if p.node == node {
				t.Errorf("%s is still on %s", p.name, node)
			}
		}
		r.d.kubectl(t, "", "uncordon", node)
	}
	if r.connected(t, r.server, r.namespace, 2); moved < 2 {
		t.Errorf("%d pods were moved", moved)
	}
}
