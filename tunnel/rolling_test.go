package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// rollout is replicas over TCP which are restarted one by one, as a Deployment
// does, agents that reach whichever is ready, and a target.
type rollout struct {
	t         *testing.T
	authority *tunnel.Authority
	store     tunnel.MemoryStore
	members   members
	target    string
	agents    []*tunnel.Agent
	forwarded atomic.Int64
	excuses   atomic.Int64 // for dials that take longer than the grace

	mu     sync.Mutex // guards the fields below
	all    []*pod     // the members
	ready  []*pod     // those of them that agents and dials may come to
	picked int
}

type pod struct {
	*tunnel.Server
	address string
	drain   context.CancelFunc
	served  chan error
}

const (
	rolloutAgents = 6
	rolloutGrace  = 2 * time.Second
)

func newRollout(t *testing.T) *rollout {
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	r := &rollout{t: t, authority: authority, target: echoTarget(t)}
	for i := range 3 {
		r.roll("replica-"+strconv.Itoa(i), nil)
	}
	for i := range rolloutAgents {
		r.agent(clusterOf(i))
	}
	r.until("the agents to have two sessions", r.reached)
	return r
}

func clusterOf(i int) string { return "cluster-" + strconv.Itoa(i%rolloutAgents) }

// echoTarget answers with what it gets.
func echoTarget(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// roll starts a replica and, once all is settled, drains the one that it
// replaces: nil if there is none. It returns when that is gone.
func (r *rollout) roll(name string, old *pod) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	p := &pod{address: l.Addr().String(), served: make(chan error, 1), Server: &tunnel.Server{
		Name: name, Authority: r.authority, Store: &r.store, Peers: &r.members, Grace: rolloutGrace,
		Hooks: tunnel.Hooks{Forwarded: func(string, time.Duration, error) { r.forwarded.Add(1) }},
	}}
	var ctx context.Context
	ctx, p.drain = context.WithCancel(context.Background())
	go func() { p.served <- p.Serve(ctx, l) }()
	r.t.Cleanup(func() {
		p.Close()
		p.drain()
	})
	r.change(func() { r.all = append(r.all, p) })
	r.until("the new replica to be ready", r.meshed)
	r.change(func() { r.ready = append(r.ready, p) })
	if old == nil {
		return
	}
	r.until("the agents to have two sessions", r.reached)
	r.change(func() { r.ready = without(r.ready, old) })
	r.excuses.Add(1)
	old.drain()
	if err := <-old.served; err != nil {
		r.t.Errorf("Serve: %v", err)
	}
	r.change(func() { r.all = without(r.all, old) })
	if err := old.Close(); err != nil {
		r.t.Errorf("Close: %v", err)
	}
}

func without(all []*pod, p *pod) []*pod {
	return slices.DeleteFunc(slices.Clone(all), func(other *pod) bool { return other == p })
}

// change changes who is there, of which the replicas hear.
func (r *rollout) change(f func()) {
	r.mu.Lock()
	f()
	var addresses []string
	for _, p := range r.all {
		addresses = append(addresses, p.address)
	}
	r.mu.Unlock()
	r.members.set(addresses...)
}

// pick returns a replica that is ready, in turn.
func (r *rollout) pick() *pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.picked++
	return r.ready[r.picked%len(r.ready)]
}

func (r *rollout) agent(cluster string) {
	inv, err := r.pick().Invite(r.t.Context(), cluster, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	a := &tunnel.Agent{
		Servers: []string{"service:1"}, Credentials: &tunnel.MemoryCredentials{},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, r.pick().address)
		},
		Invitation:   func(context.Context) (tunnel.Invitation, error) { return inv, nil },
		Targets:      tunnel.Targets{Allow: []string{r.target}},
		FirstBackoff: 200 * time.Millisecond, MaxBackoff: time.Second, Grace: -1,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	r.agents = append(r.agents, a)
}

func (r *rollout) until(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			for _, a := range r.agents {
				r.t.Errorf("%+v", a.Status())
			}
			r.t.Fatalf("waited for %s", what)
		}
	}
}

// meshed reports whether each replica has a session with each other one.
func (r *rollout) meshed() bool {
	r.mu.Lock()
	all := r.all
	r.mu.Unlock()
	return !slices.ContainsFunc(all, func(p *pod) bool { return len(connected(p.Server)) < len(all) })
}

// reached reports whether each agent has two sessions. It is what to wait for
// before the next replica goes: minReadySeconds.
func (r *rollout) reached() bool {
	return !slices.ContainsFunc(r.agents, func(a *tunnel.Agent) bool { return len(serving(&agent{Agent: a})) < 2 })
}

// dial connects to the target by a replica, and has it answer.
func (r *rollout) dial(p *pod, cluster string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	conn, err := p.Dialer(cluster).DialContext(ctx, "tcp", r.target)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	got := make([]byte, 5)
	if _, err = conn.Write([]byte("hello")); err == nil {
		_, err = io.ReadFull(conn, got)
	}
	if err == nil && !bytes.Equal(got, []byte("hello")) {
		err = errors.New("got " + strconv.Quote(string(got)))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// follow reads what comes now and then, as kubectl logs -f does, and returns
// when it ended.
func follow(conn net.Conn) time.Time {
	defer conn.Close()
	conn.SetDeadline(time.Time{})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := conn.Write([]byte("x")); err != nil {
			break
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			break
		}
	}
	return time.Now()
}

// Three replicas are restarted one after the other under 200 dials a second by
// whichever is ready: none fails, and what is open lives as long as the grace.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	var dials atomic.Int64
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(time.Second / 200)
		defer tick.Stop()
		last := time.Now()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if time.Since(last) > time.Second/2 {
				r.excuses.Add(1) // the machine stands still, or as good as that
			}
			last = time.Now()
			work.Go(func() {
				p, began, excuses := r.pick(), time.Now(), r.excuses.Load()
				conn, err := r.dial(p, clusterOf(i))
				if took := time.Since(began); err != nil && took > rolloutGrace && r.excuses.Load() > excuses {
					t.Logf("dial %d by %s: after %v: %v", i, p.Name, took, err)
					return
				}
				if err != nil {
					t.Errorf("dial %d by %s: %v", i, p.Name, err)
					return
				}
				dials.Add(1)
				conn.Close()
			})
		}
	})
	r.mu.Lock()
	old := slices.Clone(r.ready)
	r.mu.Unlock()
	for i, p := range old {
		r.restart(p, "replica-"+strconv.Itoa(i+3))
	}
	close(done)
	work.Wait()
	t.Logf("%d dials, %d forwarded", dials.Load(), r.forwarded.Load())
	if dials.Load() == 0 || r.forwarded.Load() == 0 {
		t.Error("want dials, and some of them forwarded")
	}
}

// restart replaces a replica while streams by it are followed: one for each
// cluster, so that some are its own agents' and others are forwarded.
func (r *rollout) restart(p *pod, name string) {
	r.t.Helper()
	ended := make(chan time.Time, rolloutAgents)
	for i := range rolloutAgents {
		conn, err := r.dial(p, clusterOf(i))
		if err != nil {
			r.t.Errorf("by %s: %v", p.Name, err)
			return
		}
		go func() { ended <- follow(conn) }()
	}
	began := time.Now()
	r.roll(name, p)
	for range rolloutAgents {
		if lived := (<-ended).Sub(began); lived < rolloutGrace {
			r.t.Errorf("a stream by %s ended %v after the restart began, want its grace, %v, at least", p.Name, lived, rolloutGrace)
		}
	}
}
