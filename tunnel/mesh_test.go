package tunnel_test

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// mesh is replicas of a server on wires, each at its name and port 1, who know
// each other at once, and behind balancer.
type mesh struct {
	t         testing.TB
	wires     wires
	authority *tunnel.Authority
	store     tunnel.MemoryStore

	mu   sync.Mutex // guards the fields below
	up   map[string]*bed
	pick func(up []string) string // the balancer's choice; nil: at random
}

const balancer = "balancer:1"

func newMesh(t testing.TB, names ...string) *mesh {
	t.Helper()
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{t: t, authority: authority, up: map[string]*bed{}}
	for _, name := range names {
		m.serve(name, &tunnel.Server{})
	}
	return m
}

// serve starts a replica.
func (m *mesh) serve(name string, s *tunnel.Server) *bed {
	m.t.Helper()
	s.Name, s.Authority = name, m.authority
	if s.Store == nil {
		s.Store = &m.store
	}
	b := newBedAt(m.t, s, &m.wires, name+":1")
	m.set(name, b)
	return b
}

// set says who is at a name, nil: nobody, and has the others tell.
func (m *mesh) set(name string, b *bed) {
	m.t.Helper()
	m.mu.Lock()
	if m.up[name] = b; b == nil {
		delete(m.up, name)
	}
	m.mu.Unlock()
	for _, name := range m.names() {
		others := slices.DeleteFunc(m.names(), func(other string) bool { return other == name })
		if err := m.bed(name).s.TellServers(append([]string{name}, others...)...); err != nil {
			m.t.Fatal(err)
		}
	}
}

// kill ends a replica at once, drain in order.
func (m *mesh) kill(name string) {
	b := m.bed(name)
	m.set(name, nil)
	b.s.Close()
}

func (m *mesh) drain(name string) *bed {
	b := m.bed(name)
	m.set(name, nil)
	b.stopServe()
	return b
}

func (m *mesh) bed(name string) *bed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up[name]
}

// names are those of the replicas that run.
func (m *mesh) names() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.up {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *mesh) balance(pick func(up []string) string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pick = pick
}

func (m *mesh) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address != balancer {
		return m.wires.Dial(ctx, network, address)
	}
	m.mu.Lock()
	pick := m.pick
	m.mu.Unlock()
	if pick == nil {
		pick = func(up []string) string { return up[rand.IntN(len(up))] }
	}
	up := m.names()
	if len(up) == 0 {
		return nil, syscall.ECONNREFUSED
	}
	return m.wires.Dial(ctx, network, pick(up)+":1")
}

func (m *mesh) Listen(ctx context.Context, address string) (net.Listener, error) {
	return m.wires.Listen(ctx, address)
}

// agent runs an agent behind the balancer, if it names no servers. An error
// that it reports is the test's.
func (m *mesh) agent(a *tunnel.Agent) *agent {
	m.t.Helper()
	if a.Servers == nil {
		a.Servers = []string{balancer}
	}
	a.Dial = m.Dial
	return m.bed(m.names()[0]).start(a)
}

// meets waits until the agent's sessions that take streams are with servers of
// these names, and returns how long that took.
func (m *mesh) meets(a *agent, want ...string) time.Duration {
	m.t.Helper()
	began := time.Now()
	slices.Sort(want)
	for !slices.Equal(serving(a), want) {
		if time.Since(began) > 10*time.Minute {
			m.t.Fatalf("got sessions with %q, want %q: %+v", serving(a), want, a.Status())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// serving are the names of the servers of sessions that take streams, sorted.
func serving(a *agent) []string {
	names := []string{}
	for _, l := range a.Status().Sessions {
		if !l.Draining {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

// dials counts those to the servers in so long.
func (m *mesh) dials(in time.Duration) int {
	before := len(m.wires.times())
	time.Sleep(in)
	return len(m.wires.times()) - before
}
