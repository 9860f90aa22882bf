package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	replicas       = 3
	agentProcesses = 2
	targetsEach    = 4 // targets a process with agents
)

// fleet is all processes, and what the first one knows of them.
type fleet struct {
	*plan
	authority *tunnel.Authority
	inviter   *tunnel.Server
	store     *storeHost
	agents    []*process
	targets   [][]string // by process
	places    []place    // by agent

	mu       sync.Mutex // guards the fields below
	replicas []*server
	gone     []string // names that were replicas'
}

// server is a replica, which is a new process after each restart.
type server struct {
	number     int
	address    string // stays
	generation int
	name       string
	process    *process
	ready      bool
}

// newFleet starts replicas and processes for agents. The caller closes it.
func newFleet(ctx context.Context, p *plan) (*fleet, error) {
	f := &fleet{plan: p}
	if err := f.startProcesses(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) startProcesses(ctx context.Context) (err error) {
	if f.authority, err = tunnel.NewAuthority(); err != nil {
		return err
	}
	if f.store, err = hostStore(); err != nil {
		return err
	}
	f.inviter = &tunnel.Server{Authority: f.authority, Store: &f.store.MemoryStore}
	for range agentProcesses {
		a, err := startProcess("agents", "agents "+strconv.Itoa(len(f.agents)))
		if err != nil {
			return err
		}
		f.agents = append(f.agents, a)
		var targets []string
		if err := a.call(ctx, "start", agentsArgs{targetsEach, f.Backoff}, &targets); err != nil {
			return err
		}
		f.targets = append(f.targets, targets)
	}
	if err := f.chooseAddresses(); err != nil {
		return err
	}
	for _, s := range f.replicas {
		if err := f.startReplica(ctx, s); err != nil {
			return err
		}
	}
	for _, s := range f.replicas {
		if err := f.waitJoined(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// chooseAddresses finds one for each replica that nothing else has: not 127.0.0.1,
// where connections begin, since it is to be free after a restart too.
func (f *fleet) chooseAddresses() error {
	a, b := rand.IntN(200)+1, rand.IntN(250)
	for i := range replicas {
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", a, b, i+1))
		if err != nil {
			return err
		}
		f.replicas = append(f.replicas, &server{number: i, address: l.Addr().String()})
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// startReplica starts a replica's process, whose name is another one each time.
func (f *fleet) startReplica(ctx context.Context, s *server) error {
	cert, key, err := f.authority.PEM()
	if err != nil {
		return err
	}
	var peers []string
	for _, other := range f.replicas {
		peers = append(peers, other.address)
	}
	name := fmt.Sprintf("replica-%d-%d", s.number, s.generation)
	p, err := startProcess("replica", name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	s.generation++
	s.process, s.name = p, name
	f.mu.Unlock()
	err = p.call(ctx, "start", replicaArgs{
		Name: name, Address: s.address, Peers: peers, Certificate: cert, Key: key, Store: f.store.address(), Grace: f.Grace,
	}, nil)
	if err != nil {
		return err
	}
	return p.call(ctx, "places", f.places, nil)
}

// waitJoined waits until a replica has met all others that run, and has
// connections and dials go to it.
func (f *fleet) waitJoined(ctx context.Context, s *server) error {
	err := f.pollUntil(ctx, func() (bool, error) {
		f.mu.Lock()
		want := -1 // not itself
		for _, other := range f.replicas {
			if other.process != nil {
				want++
			}
		}
		f.mu.Unlock()
		var peers int
		err := s.process.call(ctx, "peers", none{}, &peers)
		return peers >= want, err
	})
	if err != nil {
		return err
	}
	return f.setReady(ctx, s, true)
}

// setReady tells the balancer.
func (f *fleet) setReady(ctx context.Context, s *server, ready bool) error {
	f.mu.Lock()
	s.ready = ready
	addresses := []string{}
	for _, other := range f.replicas {
		if other.ready {
			addresses = append(addresses, other.address)
		}
	}
	f.mu.Unlock()
	for _, a := range f.agents {
		if err := a.call(ctx, "ready", addresses, nil); err != nil {
			return err
		}
	}
	return nil
}

// readyReplicas returns the replicas that are ready.
func (f *fleet) readyReplicas() []*server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.replicas), func(s *server) bool { return !s.ready })
}

// dialAt spreads a rate over the replicas that are ready.
func (f *fleet) dialAt(ctx context.Context, rate float64) error {
	ready := f.readyReplicas()
	for _, s := range ready {
		if err := s.process.call(ctx, "rate", rate/float64(len(ready)), nil); err != nil {
			return err
		}
	}
	return nil
}

// collectDials returns the results of the dials at the replicas that are ready, since
// it was last called.
func (f *fleet) collectDials(ctx context.Context) (sum dials, err error) {
	for _, s := range f.readyReplicas() {
		var d dials
		if err := s.process.call(ctx, "results", none{}, &d); err != nil {
			return sum, err
		}
		sum.add(d)
	}
	return sum, nil
}

// waitDials adds the results of the dials to sum, until that has so many.
func (f *fleet) waitDials(ctx context.Context, sum *dials, least int) error {
	return f.pollUntil(ctx, func() (bool, error) {
		d, err := f.collectDials(ctx)
		sum.add(d)
		return len(sum.Took)+sum.failed() >= least, err
	})
}

// waitSessions waits until each agent has sessions with two replicas.
func (f *fleet) waitSessions(ctx context.Context) error {
	return f.pollUntil(ctx, func() (bool, error) {
		c, err := f.countSessions(ctx)
		return c.Two == len(f.places), err
	})
}

// addAgents starts agents until there are n, and waits until each has sessions with
// two replicas.
func (f *fleet) addAgents(ctx context.Context, n int) error {
	invitations := make([][]invited, len(f.agents))
	for i := len(f.places); i < n; i++ {
		inv, err := f.inviter.Invite(ctx, "cluster-"+strconv.Itoa(i), 24*time.Hour)
		if err != nil {
			return err
		}
		at := i % len(f.agents)
		invitations[at] = append(invitations[at], invited{inv.Cluster, inv.Token, inv.Pin})
		f.places = append(f.places, place{inv.Cluster, f.targets[at][i/len(f.agents)%targetsEach]})
	}
	for i, a := range f.agents {
		if err := a.call(ctx, "add", invitations[i], nil); err != nil {
			return err
		}
	}
	return f.waitSessions(ctx)
}

// sendPlaces tells the replicas of all places.
func (f *fleet) sendPlaces(ctx context.Context) error {
	for _, s := range f.replicas {
		if err := s.process.call(ctx, "places", f.places, nil); err != nil {
			return err
		}
	}
	return nil
}

// countSessions counts the agents' sessions with replicas that run.
func (f *fleet) countSessions(ctx context.Context) (sum census, err error) {
	f.mu.Lock()
	gone := slices.Clone(f.gone)
	f.mu.Unlock()
	for _, a := range f.agents {
		var c census
		if err := a.call(ctx, "count", gone, &c); err != nil {
			return sum, err
		}
		sum = sum.plus(c)
	}
	return sum, nil
}

// sumUsage returns what the replicas and the agents have used.
func (f *fleet) sumUsage(ctx context.Context, tidy bool) (u [2]usage, err error) {
	processes := [2][]*process{nil, f.agents}
	for _, s := range f.replicas {
		processes[0] = append(processes[0], s.process)
	}
	for side, all := range processes {
		for _, p := range all {
			var one usage
			if err := p.call(ctx, "usage", tidy, &one); err != nil {
				return u, err
			}
			u[side] = u[side].plus(one)
		}
	}
	return u, nil
}

// pollUntil waits until something is so.
func (f *fleet) pollUntil(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(f.Poll)
	defer tick.Stop()
	for {
		if yes, err := ok(); yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends all processes.
func (f *fleet) Close() error {
	var wg sync.WaitGroup
	for _, a := range f.agents {
		wg.Go(a.stop)
	}
	wg.Wait()
	for _, s := range f.replicas {
		if s.process != nil {
			wg.Go(s.process.stop)
		}
	}
	wg.Wait()
	var errs []error
	if f.inviter != nil {
		errs = append(errs, f.inviter.Close())
	}
	if f.store != nil {
		errs = append(errs, f.store.Close())
	}
	return errors.Join(errs...)
}
