package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/tunnel"
)

// TestPartitions: what happens where replicas of the tunnel's server, agents and
// the API server can't hear each other. The table that it ends with is the one
// in examples/deploy/FAULTS.md, with what it took this time.
func TestPartitions(t *testing.T) {
	t.Parallel() // waits much
	table := &faultTable{}
	t.Run("faults", func(t *testing.T) {
		for _, fault := range []struct {
			name string
			test func(*testing.T, *faultTable)
		}{
			{"peers", testCutFromPeers},
			{"API server", testCutFromAPIServer},
			{"agents", testCutFromAgents},
			{"slices", testStaleSlices},
			{"moved", testAgentMoved},
		} {
			t.Run(fault.name, func(t *testing.T) {
				t.Parallel()
				fault.test(t, table)
			})
		}
	})
	t.Logf("what happened:\n\n%s", table)
}

// faultTable is what happened, in Markdown.
type faultTable struct {
	mu   sync.Mutex // guards the field below
	rows []string
}

func (f *faultTable) add(fault, what, happened string, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, fmt.Sprintf("| %s | %s | %s | %v |\n", fault, what, happened, took.Round(10*time.Millisecond)))
}

func (f *faultTable) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows := slices.Clone(f.rows)
	slices.SortStableFunc(rows, func(a, b string) int {
		return strings.Compare(strings.SplitN(a, "|", 3)[1], strings.SplitN(b, "|", 3)[1])
	})
	return "| fault | what | what happened | took |\n| --- | --- | --- | --- |\n" + strings.Join(rows, "")
}

// replicaPort is where replicas listen, for agents and for each other.
const replicaPort = "8443"

// A split is replicas and agents on a star, each on a host of its own, whose
// network a test cuts.
type split struct {
	*bed.Star
	t         *testing.T
	fault     string
	table     *faultTable
	authority *tunnel.Authority
	store     tunnel.Store
	replicas  map[string]*replica
}

func newSplit(t *testing.T, table *faultTable, fault string, hosts ...string) *split {
	t.Helper()
	star, err := sharedBed(t).NewStar(t.Context(), hosts...)
	if err != nil {
		t.Fatal(err)
	}
	s := &split{Star: star, t: t, fault: fault, table: table,
		authority: newAuthority(t), store: &tunnel.MemoryStore{}, replicas: map[string]*replica{}}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tell adds a row to the table.
func (s *split) tell(what, happened string, took time.Duration) {
	s.table.add(s.fault, what, happened, took)
}

// cut drops what goes from one host to others, heal ends all cuts.
func (s *split) cut(from string, to ...string) {
	s.t.Helper()
	if err := s.Cut(s.t.Context(), from, to...); err != nil {
		s.t.Fatal(err)
	}
}

// cutBoth is cut in both directions.
func (s *split) cutBoth(host string, others ...string) {
	s.t.Helper()
	s.cut(host, others...)
	for _, other := range others {
		s.cut(other, host)
	}
}

func (s *split) heal() {
	s.t.Helper()
	if err := s.Heal(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *split) address(name string) string { return net.JoinHostPort(s.IP(name), replicaPort) }

func (s *split) addresses(names ...string) (all []string) {
	for _, name := range names {
		all = append(all, s.address(name))
	}
	return all
}

// soonDead finds a dead carrier in 20 s, where the default is 30.
var soonDead = tunnel.KeepAlive{ProbeAfter: 3 * time.Second, DeadAfter: 20 * time.Second}

// movesOn is before a dead carrier is found: a dial does not wait for that.
const movesOn = 18 * time.Second

// A replica is a server, and what its hooks have told.
type replica struct {
	*tunnel.Server
	split *split
	name  string
	host  *bed.Namespace

	mu      sync.Mutex     // guards the fields below
	peers   map[string]int // sessions with other replicas, by name
	agents  map[string]int // sessions of agents, by cluster
	ended   []error        // why sessions of agents ended
	refused []error
}

// replica serves s at the host of the name until the test ends. The replicas are
// each other's peers, unless s says otherwise.
func (s *split) replica(name string, server *tunnel.Server, peers ...string) *replica {
	s.t.Helper()
	r := &replica{Server: server, split: s, name: name, host: s.Host(name), peers: map[string]int{}, agents: map[string]int{}}
	server.Name, server.PeerDial, server.Hooks = name, r.host.DialContext, r.hooks()
	if server.Authority == nil {
		server.Authority = s.authority
	}
	if server.Store == nil {
		server.Store = s.store
	}
	if server.Peers == nil {
		server.Peers = tunnel.StaticPeers(s.addresses(peers...))
	}
	l := listen(s.t, r.host, s.address(name))
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	s.t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-served); err != nil {
			s.t.Error(err)
		}
	})
	s.replicas[name] = r
	return r
}

func (r *replica) hooks() tunnel.Hooks {
	note := func(f func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
	}
	return tunnel.Hooks{
		Connected: func(i tunnel.SessionInfo) { note(func() { r.agents[i.Cluster]++ }) },
		Disconnected: func(i tunnel.SessionInfo, err error) {
			note(func() { r.agents[i.Cluster]--; r.ended = append(r.ended, err) })
		},
		Refused:          func(_ net.Addr, err error) { note(func() { r.refused = append(r.refused, err) }) },
		PeerConnected:    func(name string) { note(func() { r.peers[name]++ }) },
		PeerDisconnected: func(name string, _ error) { note(func() { r.peers[name]-- }) },
	}
}

// until waits until what the hooks told makes holds true, and returns how long
// that took.
func (r *replica) until(what string, holds func() bool) time.Duration {
	r.split.t.Helper()
	began := time.Now()
	eventually(r.split.t, r.name+": "+what, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !holds() {
			return fmt.Errorf("it has sessions with the replicas %v and of the agents %v; refused: %v; ended: %v", r.peers, r.agents, r.refused, r.ended)
		}
		return nil
	})
	return time.Since(began)
}

// meets waits until the replica has a session with each of the others.
func (r *replica) meets(others ...string) time.Duration {
	r.split.t.Helper()
	return r.until("sessions with "+fmt.Sprint(others), func() bool {
		return !slices.ContainsFunc(others, func(other string) bool { return r.peers[other] == 0 })
	})
}

// loses waits until the replica has a session with none of the others.
func (r *replica) loses(others ...string) time.Duration {
	r.split.t.Helper()
	return r.until("no session with "+fmt.Sprint(others), func() bool {
		return !slices.ContainsFunc(others, func(other string) bool { return r.peers[other] > 0 })
	})
}

// has waits until the replica has so many sessions of a cluster's agents.
func (r *replica) has(cluster string, sessions int) time.Duration {
	r.split.t.Helper()
	return r.until(fmt.Sprintf("%d sessions of %s", sessions, cluster), func() bool { return r.agents[cluster] == sessions })
}

// mesh waits until all replicas have sessions with each other.
func (s *split) mesh() time.Duration {
	s.t.Helper()
	began := time.Now()
	for name, r := range s.replicas {
		for other := range s.replicas {
			if other != name {
				r.meets(other)
			}
		}
	}
	return time.Since(began)
}

// bounded wants a dial to have taken no longer than movesOn, and returns what it
// took.
func (s *split) bounded(took time.Duration) time.Duration {
	s.t.Helper()
	if took > movesOn {
		s.t.Errorf("a dial took %v, want %v at most", took, movesOn)
	}
	return took
}

// echoes dials the echo target of a cluster by the replica, with the patience of
// DialTimeout, has a byte sent back, and returns how long that took.
func (r *replica) echoes(cluster string) time.Duration {
	r.split.t.Helper()
	took, err := r.tryEcho(r.split.t.Context(), cluster)
	if err != nil {
		r.split.t.Errorf("a dial at %s of %s: %v after %v", r.name, cluster, err, took)
	}
	return took
}

func (r *replica) tryEcho(ctx context.Context, cluster string) (time.Duration, error) {
	began := time.Now()
	conn, err := r.Dialer(cluster).DialContext(ctx, "tcp", echoTarget)
	if err != nil {
		return time.Since(began), err
	}
	defer conn.Close()
	err = echo(conn, time.Now().Add(patience))
	return time.Since(began), err
}

// failsWith is echoes that has to fail with the code: no other one means that
// the dial has waited for its own deadline.
func (r *replica) failsWith(cluster string, code tunnel.Code) time.Duration {
	r.split.t.Helper()
	took, err := r.tryEcho(r.split.t.Context(), cluster)
	var e *tunnel.Error
	if !errors.As(err, &e) || e.Code != code {
		r.split.t.Errorf("a dial at %s of %s: got %v after %v, want %v", r.name, cluster, err, took, code)
	}
	return took
}

// A runningAgent is an agent on a host of the star.
type runningAgent struct {
	*tunnel.Agent
	failed chan error
	stop   func() // ends Run and waits for it
}

// agent runs one until the test ends, or until stop. What a says already stays.
func (s *split) agent(host, cluster string, a *tunnel.Agent, servers ...string) *runningAgent {
	s.t.Helper()
	ns := s.Host(host)
	if a.Credentials == nil {
		a.Credentials = &tunnel.MemoryCredentials{}
	}
	if a.Invitation == nil {
		inv := s.invite(cluster)
		a.Invitation = func(context.Context) (tunnel.Invitation, error) { return inv, nil }
	}
	run := &runningAgent{Agent: a, failed: make(chan error, 1000)}
	a.Servers, a.Dial, a.KeepAlive = s.addresses(servers...), ns.DialContext, soonDead
	a.Targets = tunnel.Targets{Allow: []string{echoTarget}, Dial: ns.DialContext}
	a.HandshakeTimeout, a.FirstBackoff, a.MaxBackoff, a.Grace = 10*time.Second, time.Second, 3*time.Second, -1
	a.Hooks.Failed = func(_ string, err error, _ time.Duration) {
		select {
		case run.failed <- err:
		default:
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	run.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(run.stop)
	return run
}

// invite has a server of the same store that nobody can reach make an
// invitation.
func (s *split) invite(cluster string) tunnel.Invitation {
	s.t.Helper()
	inviter := &tunnel.Server{Authority: s.authority, Store: s.store}
	defer inviter.Close()
	inv, err := inviter.Invite(s.t.Context(), cluster, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return inv
}

// target serves the echo target on a host until the test ends.
func (s *split) target(host string) {
	s.t.Helper()
	l := listen(s.t, s.Host(host), echoTarget)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				io.Copy(conn, conn)
			})
		}
	})
	s.t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
}
