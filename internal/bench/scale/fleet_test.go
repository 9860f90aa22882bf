package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
	"github.com/causewayproject/causeway/tunnel"
)

const (
	maxAgents   = 2500 // of a process, which has the ends of their sessions and of connections to targets
	targetsEach = 4    // targets a process with agents
)

// fleet is all processes, and what the first one knows of them.
type fleet struct {
	*testing.T // of the phase
	plan
	authority *tunnel.Authority
	inviter   *tunnel.Server
	store     *storeHost
	agents    []*rig.Child
	targets   [][]string // by process
	places    []place    // by agent
	replicas  []*server
	gone      []string // names that were replicas'
}

// server is a replica, which is a new process after each restart.
type server struct {
	number     int
	address    string // stays
	generation int
	name       string
	process    *rig.Child
	ready      bool
}

// newFleet starts replicas and processes for agents, which end with the test.
func newFleet(t *testing.T, p plan) *fleet {
	f := &fleet{T: t, plan: p}
	var err error
	if f.authority, err = tunnel.NewAuthority(); err == nil {
		f.store, err = hostStore()
	}
	if err != nil {
		t.Fatal(err)
	}
	f.inviter = &tunnel.Server{Authority: f.authority, Store: &f.store.MemoryStore}
	t.Cleanup(f.close)
	for range f.agentProcesses() {
		a := f.startProcess("agents")
		f.agents = append(f.agents, a)
		var targets []string
		f.call(a, "Start", AgentsArgs{targetsEach, f.backoff, f.counted}, &targets)
		f.targets = append(f.targets, targets)
	}
	f.chooseAddresses()
	for _, s := range f.replicas {
		f.startReplica(s)
	}
	for _, s := range f.replicas {
		f.waitJoined(s)
	}
	return f
}

func (p plan) agentProcesses() int {
	last := 0
	if len(p.steps) > 0 {
		last = p.steps[len(p.steps)-1]
	}
	return max(2, (last+maxAgents-1)/maxAgents)
}

func (f *fleet) startProcess(role string) *rig.Child {
	c, err := rig.Start(role, closeTimeout)
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// call asks a process; what goes wrong ends the test.
func (f *fleet) call(c *rig.Child, method string, args, reply any) {
	f.Helper()
	if err := c.Call(f.Context(), method, args, reply); err != nil {
		f.Fatal(err)
	}
}

// callAgents asks all processes with agents.
func (f *fleet) callAgents(method string, args any) {
	for _, a := range f.agents {
		f.call(a, method, args, nil)
	}
}

// pollUntil waits until something is so.
func (f *fleet) pollUntil(done func() bool) {
	if err := rig.Poll(f.Context(), f.poll, func() (bool, error) { return done(), nil }); err != nil {
		f.Fatal(err)
	}
}

// chooseAddresses finds one for each replica that nothing else has: not 127.0.0.1,
// where connections begin, since it is to be free after a restart too.
func (f *fleet) chooseAddresses() {
	a, b := rand.IntN(200)+1, rand.IntN(250)
	for i := range f.plan.replicas {
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", a, b, i+1))
		if err != nil {
			f.Fatal(err)
		}
		f.replicas = append(f.replicas, &server{number: i, address: l.Addr().String()})
		l.Close()
	}
}

// startReplica starts a replica's process, whose name is another one each time.
func (f *fleet) startReplica(s *server) {
	cert, key, err := f.authority.PEM()
	if err != nil {
		f.Fatal(err)
	}
	var peers []string
	for _, other := range f.replicas {
		peers = append(peers, other.address)
	}
	s.name = fmt.Sprintf("replica-%d-%d", s.number, s.generation)
	s.process = f.startProcess("replica")
	s.generation++
	f.call(s.process, "Start", ReplicaArgs{
		Name: s.name, Address: s.address, Peers: peers, Certificate: cert, Key: key, Store: f.store.Addr(), Grace: f.grace, Counted: f.counted,
	}, nil)
	f.call(s.process, "Places", f.places, nil)
}

// waitJoined waits until a replica has met all others that run, and has
// connections and dials go to it.
func (f *fleet) waitJoined(s *server) {
	want := -1 // not itself
	for _, other := range f.replicas {
		if other.process != nil {
			want++
		}
	}
	f.pollUntil(func() bool {
		var peers int
		f.call(s.process, "Peers", rig.None{}, &peers)
		return peers >= want
	})
	f.setReady(s, true)
}

// setReady tells the balancer.
func (f *fleet) setReady(s *server, ready bool) {
	s.ready = ready
	addresses := []string{}
	for _, other := range f.readyReplicas() {
		addresses = append(addresses, other.address)
	}
	f.callAgents("Ready", addresses)
}

func (f *fleet) readyReplicas() []*server {
	return slices.DeleteFunc(slices.Clone(f.replicas), func(s *server) bool { return !s.ready })
}

// dialAt spreads a rate over the replicas that are ready.
func (f *fleet) dialAt(rate float64) {
	ready := f.readyReplicas()
	for _, s := range ready {
		f.call(s.process, "Rate", rate/float64(len(ready)), nil)
	}
}

// collectDials returns the results of the dials at the replicas that are ready, since
// it was last called.
func (f *fleet) collectDials() (sum Dials) {
	for _, s := range f.readyReplicas() {
		var d Dials
		f.call(s.process, "Results", rig.None{}, &d)
		sum.add(d)
	}
	return sum
}

// waitDials adds the results of the dials to sum, until that has so many.
func (f *fleet) waitDials(sum *Dials, least int) {
	f.pollUntil(func() bool {
		sum.add(f.collectDials())
		return sum.count() >= least
	})
}

// waitSessions waits until each agent has sessions with two replicas.
func (f *fleet) waitSessions() {
	f.pollUntil(func() bool { return f.countSessions().Two == len(f.places) })
}

// addAgents starts agents until there are n, and waits until each has sessions with
// two replicas.
func (f *fleet) addAgents(n int) {
	invitations := make([][]invited, len(f.agents))
	for i := len(f.places); i < n; i++ {
		inv, err := f.inviter.Invite(f.Context(), "cluster-"+strconv.Itoa(i), 24*time.Hour)
		if err != nil {
			f.Fatal(err)
		}
		at := i % len(f.agents)
		invitations[at] = append(invitations[at], invited{inv.Cluster, inv.Token, inv.Pin})
		f.places = append(f.places, place{inv.Cluster, f.targets[at][i/len(f.agents)%targetsEach]})
	}
	for i, a := range f.agents {
		f.call(a, "Add", invitations[i], nil)
	}
	f.waitSessions()
}

// sendPlaces tells the replicas of all places.
func (f *fleet) sendPlaces() {
	for _, s := range f.replicas {
		f.call(s.process, "Places", f.places, nil)
	}
}

// countSessions counts the agents' sessions with replicas that run.
func (f *fleet) countSessions() Census {
	c, err := f.takeCensus(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// takeCensus is countSessions for other goroutines than the test's.
func (f *fleet) takeCensus(ctx context.Context) (sum Census, err error) {
	for _, a := range f.agents {
		var c Census
		if err := a.Call(ctx, "Count", f.gone, &c); err != nil {
			return sum, err
		}
		sum = sum.plus(c)
	}
	return sum, nil
}

// sumUsage returns what the replicas and the agents have used.
func (f *fleet) sumUsage(tidy bool) (u [2]rig.Usage) {
	processes := [2][]*rig.Child{nil, f.agents}
	for _, s := range f.replicas {
		processes[0] = append(processes[0], s.process)
	}
	for side, all := range processes {
		for _, p := range all {
			var one rig.Usage
			f.call(p, "Usage", tidy, &one)
			u[side] = u[side].Plus(one)
		}
	}
	return u
}

// close ends all processes. The agents go first: they would connect anew.
func (f *fleet) close() {
	all := [2][]*rig.Child{f.agents, nil}
	for _, s := range f.replicas {
		all[1] = append(all[1], s.process)
	}
	for _, side := range all {
		var wg sync.WaitGroup
		for _, p := range side {
			if p == nil {
				continue
			}
			wg.Go(func() {
				if err := p.Stop(); err != nil && !f.Failed() {
					f.Error(err)
				}
			})
		}
		wg.Wait()
	}
	f.inviter.Close()
	f.store.Close()
}
