package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/management"
	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/tunnel"
)

// clusterFlags are those of the agents that the machines of Clusters come with.
type clusterFlags struct {
	on                    bool
	gateway, image, proxy string
	noProxy               cli.List
	ticketLife            time.Duration
}

func (f *clusterFlags) add(set *pflag.FlagSet) {
	set.BoolVar(&f.on, "clusters", false, "look after the Clusters of Cluster API with the label causewayproject.github.io/tunnel=true: give their machines agents, and show in each whether one is connected; goes with --secrets")
	set.StringVar(&f.gateway, "gateway", "", "`URL` of --connect or --connect-tls as clients see it, for the kubeconfigs of --clusters; default: the kubeconfig provider knows it")
	set.DurationVar(&f.ticketLife, "ticket-life", 8760*time.Hour, "how long the tickets of --clusters are valid; after half of it there is a new one. Cluster API reads no new one while its connection lives")
	set.StringVar(&f.image, "agent-image", "", "the `image` of causeway-agent, for static pods of --clusters; default: there are none")
	set.StringVar(&f.proxy, "agent-proxy", "", "`URL` of the proxy that leads agents of --clusters out, or direct; default: the machine's drop-in for tunnel-agent.service, if it has one")
	set.Var(&f.noProxy, "agent-no-proxy", "`list` of hosts, as in NO_PROXY, that --agent-proxy is not for")
}

func (f *clusterFlags) check(state *stateFlags) error {
	if !f.on {
		return nil // the gateway's variable is for other commands, too
	}
	if state.secrets == "" {
		return cli.Mistake("--clusters goes with --secrets, in the cluster that has the Clusters")
	}
	if f.ticketLife < time.Second {
		return cli.Mistake("--ticket-life must be a second or more, such as 8760h")
	}
	if err := quote.CheckImage(f.image); err != nil && f.image != "" {
		return cli.Mistake("--agent-image %v", err)
	}
	_, err := f.environment()
	return err
}

// environment are more lines of invitations.
func (f *clusterFlags) environment() ([]string, error) {
	proxy, err := readAgentProxy(f.proxy, f.noProxy)
	return proxy.lines(), cli.FieldMistake(err, "--proxy", "--agent-proxy", "--no-proxy", "--agent-no-proxy")
}

// clusters runs the reconciler of Clusters in the server's process. The zero value runs
// nothing.
type clusters struct {
	program management.Program
	log     *slog.Logger
	changed chan struct{}
	refused chan error
}

const (
	firstClustersRetry = 5 * time.Second
	maxClustersRetry   = time.Minute
)

// newClusters returns an error for flags that can't work.
func (p *program) newClusters(ctx context.Context, f *serveFlags) (*clusters, error) {
	if !f.clusters.on {
		return nil, nil
	}
	st := p.state
	servers, err := advertisedServers(ctx, st)
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		return nil, cli.Mistake("--clusters goes with --advertise, which is what agents connect to")
	}
	environment, err := f.clusters.environment()
	if err != nil {
		return nil, err
	}
	c := &clusters{log: p.log, changed: make(chan struct{}, 1), refused: make(chan error, 16)}
	r := &controllers.TunnelReconciler{
		Server: clusterServer{p.server, st}, Tickets: &p.tickets.Tickets, SetPayload: st.setPayload, Records: f.state.secrets,
		TicketLife: f.clusters.ticketLife, Servers: servers, Gateway: f.clusters.gateway, Environment: environment, Image: f.clusters.image,
		Changed: c.changed, Refused: c.refused,
	}
	if err := r.Check(); err != nil {
		return nil, cli.FieldMistake(err, "controllers: TunnelReconciler.Gateway", "--gateway",
			"put it into the Secret that route-secret names", "leave it out, since each Cluster gets a ticket of its own", "controllers: TunnelReconciler.Records", "--secrets")
	}
	c.program = management.Program{
		Flags: management.Flags{Kubeconfig: f.state.kubeconfig, LeaseNamespace: st.secrets.namespace, Workers: 4},
		Name:  "tunnel-clusters", LeaseName: st.secrets.prefix + "-clusters", Setup: r.SetupWithManager,
	}
	return c, nil
}

// run runs until ctx ends, whatever happens to the API server: the tunnel goes on.
func (c *clusters) run(ctx context.Context) {
	for wait := firstClustersRetry; ctx.Err() == nil; wait = min(2*wait, maxClustersRetry) {
		began := time.Now()
		err := c.program.Run(ctx, c.log)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxClustersRetry {
			wait = firstClustersRetry
		}
		c.log.Warn("clusters", "error", err, "retry", wait)
		backoff.Sleep(ctx, wait)
	}
}

// addHooks has the reconciler look when an agent comes or goes here. Nothing waits for it.
func (c *clusters) addHooks(h tunnel.Hooks) tunnel.Hooks {
	notice := func() {
		select {
		case c.changed <- struct{}{}:
		default: // it is about to look
		}
	}
	connected, disconnected, refused := h.Connected, h.Disconnected, h.Refused
	h.Connected = func(s tunnel.SessionInfo) { connected(s); notice() }
	h.Disconnected = func(s tunnel.SessionInfo, err error) { disconnected(s, err); notice() }
	h.Refused = func(remote net.Addr, err error) {
		refused(remote, err)
		if e, ok := errors.AsType[*tunnel.Error](err); !ok || e.Cluster == "" {
			return // strangers cause thousands
		}
		select {
		case c.refused <- err:
		default:
		}
	}
	return h
}

// clusterServer notes the clusters that get invitations, as enroll does.
type clusterServer struct {
	*tunnel.Server
	state *state
}

// InviteAgents implements controllers.TunnelServer.
func (s clusterServer) InviteAgents(ctx context.Context, cluster string, agents int, life time.Duration) (tunnel.Invitation, error) {
	if err := noteCluster(ctx, s.state, cluster); err != nil {
		return tunnel.Invitation{}, err
	}
	return s.Server.InviteAgents(ctx, cluster, agents, life)
}

// EndCluster implements controllers.TunnelServer. Nobody is to be warned of a cluster
// that nobody was invited to any more. Its end need not be kept as long as tickets live: the
// next cluster of the name does not take them, see noteCluster.
func (s clusterServer) EndCluster(ctx context.Context, cluster string, _ time.Duration) error {
	if err := s.Server.EndCluster(ctx, cluster, 0); err != nil {
		return err
	}
	return s.state.deleteValue(ctx, clusterFile(cluster))
}
