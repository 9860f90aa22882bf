package scale

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// agentsRole is many agents, and targets beside them.
type agentsRole struct {
	rig.Process
	traffic // with the replicas
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup

	slots   chan struct{} // an attempt to connect has one: see maxAttempts
	targets []*proxytest.Server
	backoff time.Duration
	agents  []*member

	mu      sync.Mutex // guards the fields below
	ready   []string
	picked  int
	failing error // the last that Run returned
}

// member is an agent, and what ends it.
type member struct {
	*tunnel.Agent
	cancel context.CancelFunc
	ran    chan struct{}
}

// AgentsArgs say how the agents are to be.
type AgentsArgs struct {
	Targets int // how many to listen at
	Backoff time.Duration
	Counted bool
}

// Start returns the targets' addresses.
func (a *agentsRole) Start(args AgentsArgs, addresses *[]string) error {
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.slots = make(chan struct{}, maxAttempts)
	a.backoff, a.wanted = args.Backoff, args.Counted
	for range args.Targets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		target := proxytest.Serve(l, func(_ context.Context, conn net.Conn) { io.Copy(conn, conn) })
		a.targets = append(a.targets, target)
		*addresses = append(*addresses, target.Addr())
	}
	return nil
}

// invited is an Invitation, whose own JSON keeps the token back.
type invited struct{ Cluster, Token, Pin string }

// Add starts an agent for each, all at once.
func (a *agentsRole) Add(invitations []invited, _ *rig.None) error {
	for _, inv := range invitations {
		m := &member{Agent: &tunnel.Agent{
			Servers: []string{"service:443"}, Dial: a.newDial(), Credentials: &tunnel.MemoryCredentials{},
			Invitation: func(context.Context) (tunnel.Invitation, error) {
				return tunnel.Invitation{Cluster: inv.Cluster, Token: inv.Token, Pin: inv.Pin}, nil
			},
			Targets:      tunnel.Targets{Allow: allowed},
			FirstBackoff: a.backoff, MaxBackoff: 4 * a.backoff, Program: "scale",
			HandshakeTimeout: slotTimeout,
		}}
		a.agents = append(a.agents, m)
		a.runAgent(m)
	}
	return nil
}

var allowed = []string{"127.0.0.1:*"}

func (a *agentsRole) runAgent(m *member) {
	ctx, cancel := context.WithCancel(a.ctx)
	m.cancel, m.ran = cancel, make(chan struct{})
	ran := m.ran
	a.work.Go(func() {
		defer close(ran)
		if err := m.Run(ctx); err != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.failing = err
		}
	})
}

// Kick ends that many agents, and starts them again with the certificates that
// they have.
func (a *agentsRole) Kick(n int, _ *rig.None) error {
	var kicked []*member
	for _, i := range rand.Perm(len(a.agents))[:min(n, len(a.agents))] {
		kicked = append(kicked, a.agents[i])
		a.agents[i].cancel()
	}
	for _, m := range kicked {
		<-m.ran
		a.runAgent(m)
	}
	return nil
}

// Ready says to which replicas connections go.
func (a *agentsRole) Ready(addresses []string, _ *rig.None) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = addresses
	return nil
}

// maxAttempts is how many agents of a process connect at once. Each has a machine of its own
// elsewhere; thousands that share two cores would all be late.
const maxAttempts = 32

// slotTimeout is the agents' HandshakeTimeout, which includes the wait for a slot. With the
// usual 15 s, the agents that waited longest got a slot with no time left, so that servers
// began handshakes in vain. The servers have the usual HandshakeTimeout.
const slotTimeout = 5 * time.Minute

// newDial returns the function by which an agent dials. An attempt, which ends with its
// context, has one slot though it may dial twice.
func (a *agentsRole) newDial() tunnel.DialFunc {
	var held atomic.Bool
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		if held.CompareAndSwap(false, true) {
			select {
			case a.slots <- struct{}{}:
				context.AfterFunc(ctx, func() {
					held.Store(false)
					<-a.slots
				})
			case <-ctx.Done():
				held.Store(false)
				return nil, ctx.Err()
			}
		}
		return a.dialReady(ctx, network)
	}
}

var errNoReplica = errors.New("no replica is ready")

// dialReady connects to one replica after the other, as a Service does: the balancer
// chooses when a connection begins, and is not in its way afterwards.
func (a *agentsRole) dialReady(ctx context.Context, network string) (net.Conn, error) {
	a.mu.Lock()
	if len(a.ready) == 0 {
		a.mu.Unlock()
		return nil, errNoReplica
	}
	a.picked++
	address := a.ready[a.picked%len(a.ready)]
	a.mu.Unlock()
	return a.dial(ctx, network, address)
}

// A Census is how many agents there are, and how many of them have a session,
// and sessions with two servers.
type Census struct {
	Agents, One, Two int
	Sessions         map[string]int // by server
}

func (c Census) plus(d Census) Census {
	sum := Census{c.Agents + d.Agents, c.One + d.One, c.Two + d.Two, map[string]int{}}
	for _, one := range []Census{c, d} {
		for name, n := range one.Sessions {
			sum.Sessions[name] += n
		}
	}
	return sum
}

// Count leaves out sessions with servers that are gone or drain.
func (a *agentsRole) Count(gone []string, reply *Census) error {
	c := Census{Agents: len(a.agents), Sessions: map[string]int{}}
	for _, m := range a.agents {
		var names []string
		for _, s := range m.Status().Sessions {
			if !s.Draining && !slices.Contains(gone, s.Name) && !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
				c.Sessions[s.Name]++
			}
		}
		if len(names) >= 1 {
			c.One++
		}
		if len(names) >= 2 {
			c.Two++
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	*reply = c
	return a.failing
}

// Close ends the agents and the targets.
func (a *agentsRole) Close() error {
	if a.cancel == nil {
		return nil
	}
	a.cancel()
	for _, l := range a.targets {
		l.Close()
	}
	a.work.Wait()
	return nil
}
