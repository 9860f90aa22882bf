// Package server is the tunnel's end beside the controllers, and the commands that work
// on its state.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/examples/programs/internal/management"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/tunnel"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
	"github.com/causewayproject/causeway/tunnel/status"
)

type serveFlags struct {
	state                              *stateFlags
	listen, websocket, tlsCert, tlsKey string
	status                             string
	forward, advertise                 cli.List
	limits                             string
	grace, watch                       time.Duration
	doors                              doorFlags
	headers                            proxyProtocol
	replicas                           replicaFlags
	clusters                           clusterFlags
	log                                logs.Flags
}

const serverLong = `Runs the tunnel's end beside the controllers. Agents connect to it, and each of its
listeners forwards to a target that the agents of one cluster dial.

The state directory holds the authority that signs all certificates, which is created at
the first start, and the tokens and revocations. The other commands work on it, whether or
not the server runs. Several servers with the same state act as one: a client of any of
them reaches the agents of all. In Kubernetes their state is in Secrets (--secrets), and
they find each other by a Service (--peers-service); examples/deploy deploys them.

Clients that can't be changed use a door: an HTTP proxy (--connect,
--connect-tls), SOCKS5 (--socks5), a server name (--sni). A ticket says which cluster a
client of the proxies may reach; kubeconfig and ticket make one. In Kubernetes, RBAC can
say so instead: with --door-token-audience a client shows a token of its ServiceAccount,
and needs the verb connect on clusters/tunnel in cluster.x-k8s.io.

Every client that can connect to a --forward listener reaches its target: keep it on
loopback, in a pod of its own, or behind a firewall. The same goes for --status, which has
a page for operators at /, and serves /healthz, /readyz, /status and /metrics (Prometheus'
text).

With --clusters, a server with its state in --secrets also looks after the Clusters of
Cluster API beside it: a machine of one that has the label causewayproject.github.io/tunnel=true
comes with an agent, and the Cluster's kubeconfig leads through the tunnel. One replica at a
time does that.

The log has a line for each connection that a client got, and for each session of an agent;
docs/logs.md lists all. Strangers can't fill it: for the failures of one source there is one
line a minute, and another that says how many were left out. The listener for agents uses up to 5,000
file descriptors for connections that are not authenticated yet, and so does each door.

Certificates, --door-client-ca and --limits are read again when the files change, or at once on
SIGHUP. What can't be used is logged, and what was there before stays. On SIGTERM the agents are told to connect to another server, and open connections live on
for --grace.`

const serverExample = `  causeway server --state /var/lib/tunnel-server --listen :8443 --advertise tunnel.example.com:8443 \
    --forward 127.0.0.1:6443=default/prod/kubernetes.default.svc:443 --connect 127.0.0.1:3128

  causeway server --secrets tunnel-server/tunnel --peers-service tunnel-server-peers

  causeway server --secrets tunnel-server/tunnel --advertise tunnel.example.com:8443 --connect :3128 --clusters \
    --gateway http://tunnel-server-gateway.tunnel-server.svc:3128

  causeway server --secrets tunnel-server/tunnel --connect :3128 --door-token-audience tunnel.example.com
  token=$(kubectl create token annie --audience tunnel.example.com)
  HTTPS_PROXY=http://default%2Fprod:$token@127.0.0.1:3128 kubectl --kubeconfig admin.conf --server https://kubernetes.default.svc get nodes`

// Commands returns the server, and what works on its state.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		serverCommand(), enrollCommand(), joinCommand(), revokeCommand(), payloadCommand(), ticketCommand(), kubeconfigCommand(), rotateCommand(),
	}
}

func serverCommand() *cobra.Command {
	f := new(serveFlags)
	cmd := &cobra.Command{
		Use:     "server",
		Short:   "run the tunnel's server, with doors for clients",
		Long:    serverLong,
		Example: serverExample,
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *serveFlags) add(set *pflag.FlagSet) {
	f.state = addStateFlags(set)
	set.StringVar(&f.listen, "listen", ":8443", "`address` for agents; empty for none")
	set.StringVar(&f.websocket, "websocket", "", "`address` for agents that come by WebSocket, for a load balancer in front; default none")
	set.StringVar(&f.tlsCert, "websocket-cert", "", "PEM `file`: the WebSocket address is wss with this certificate")
	set.StringVar(&f.tlsKey, "websocket-key", "", "PEM `file` of its key")
	set.Var(&f.advertise, "advertise", "`address` that enroll gives to agents: host:port, or a wss URL; several are allowed")
	set.Var(&f.forward, "forward", "`LISTEN=CLUSTER/HOST:PORT`: a listener, and what its connections are led to; several are allowed")
	set.StringVar(&f.status, "status", "127.0.0.1:8080", "`address` of a page for operators at /, and of /healthz, /readyz, /status and /metrics; empty for none")
	set.StringVar(&f.limits, "limits", "", "YAML `file`: how many connections, dials and bytes clients, clusters and sources may have, of each replica; it is read again when it changes; default no limits (see docs/operators.md)")
	f.doors.add(set)
	f.headers.add(set)
	f.replicas.add(set)
	f.clusters.add(set)
	f.log.Add(set)
	set.DurationVar(&f.grace, "grace", 30*time.Second, "how long open connections live on after a signal")
	set.DurationVar(&f.watch, "watch", 2*time.Second, "how often to look for what commands changed in the --state")
}

func (f *serveFlags) check() error {
	switch {
	case f.listen == "" && f.websocket == "":
		return cli.Mistake("no agent can connect: one of --listen and --websocket must be set")
	case f.grace < 0:
		return cli.Mistake("--grace must not be less than zero")
	case f.watch <= 0:
		return cli.Mistake("--watch must be more than zero, such as 2s")
	case (f.tlsCert == "") != (f.tlsKey == ""), f.tlsCert != "" && f.websocket == "":
		return cli.Mistake("--websocket-cert and --websocket-key go together, with --websocket")
	}
	for _, text := range f.forward {
		if _, _, err := parseForward(text); err != nil {
			return err
		}
	}
	return cmp.Or(checkServers("--advertise", f.advertise), f.doors.check(), f.headers.check(), f.clusters.check(f.state), f.replicas.check(f.state))
}

// service is a listener and what runs on it until the listener is closed, or
// until the program ends.
type service struct {
	name string
	l    net.Listener
	run  func(l net.Listener) error
}

type program struct {
	log          *slog.Logger
	state        *state
	server       *tunnel.Server
	tickets      *tickets
	byToken      authenticator // nil: there are no tokens
	events       *events
	metrics      *serverMetrics
	headers      *proxyProtocol
	doorFailed   map[string]func(error) // the hooks Failed, by listener
	grace, every time.Duration
	joins        *joins
	watch        *watcher
	page         status.Handler
	clusters     *clusters // nil: no Clusters are looked after
	// late ends after the grace. The server and the status page run until then.
	late context.Context
}

func (f *serveFlags) run(ctx context.Context, stderr io.Writer) error {
	log := f.log.New(stderr)
	st, err := f.state.create(log, f.watch)
	if err != nil {
		return err
	}
	byToken, err := f.doors.byToken(f.state)
	if err != nil {
		return err
	}
	server, tickets, err := f.openState(ctx, st)
	if err != nil {
		return err
	}
	f.replicas.configurePeers(server, st)
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	p := &program{
		log: log, state: st, server: server, tickets: tickets, events: newEvents(log), metrics: newServerMetrics(server), headers: &f.headers,
		grace: f.grace, every: f.watch, late: late,
		doorFailed: map[string]func(error){},
	}
	p.byToken = p.metrics.countReviews(byToken)
	if p.joins, err = newJoins(ctx, p); err != nil {
		return fmt.Errorf("%s: %w", f.state, err)
	}
	p.watch = newWatcher(p)
	if f.limits != "" {
		if err := p.followLimits(f.limits); err != nil {
			return fmt.Errorf("--limits: %w", err)
		}
	}
	p.page.Fleet, p.page.Notes, p.page.Program = p.fleet, p.notes, cli.Version("causeway")
	server.Budget = &tunnel.Budget{Bytes: cli.MemoryShare()}
	server.Payloads = p.watch.payloads
	server.Hooks = p.metrics.tunnel.Hooks(p.events.tunnelHooks())
	if p.clusters, err = p.newClusters(ctx, f); err != nil {
		return err
	}
	if p.clusters != nil {
		server.Hooks = p.clusters.addHooks(server.Hooks)
	}
	services, err := p.listen(ctx, f)
	if err != nil {
		return err
	}
	return p.run(ctx, end, services)
}

// openState reads the state, and writes to it what commands need to know.
func (f *serveFlags) openState(ctx context.Context, st *state) (*tunnel.Server, *tickets, error) {
	server, err := st.server(ctx)
	if err == nil && len(f.advertise) > 0 {
		err = st.putChanged(ctx, valueRecord(serversFile, []byte(strings.Join(f.advertise, "\n")+"\n")))
	}
	if err == nil {
		err = saveGateway(ctx, st, &f.doors)
	}
	t := new(tickets)
	if err == nil {
		err = loadTickets(ctx, st, t)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.state, err)
	}
	t.followRevocations(st)
	return server, t, nil
}

// listen opens all listeners before anything runs, so that a wrong address ends the
// program at once.
func (p *program) listen(ctx context.Context, f *serveFlags) (services []service, err error) {
	var outer *tls.Config // nil without --websocket-cert
	if f.tlsCert != "" {
		if outer, err = p.followCertificate("websocket", f.tlsCert, f.tlsKey); err != nil {
			return nil, fmt.Errorf("--websocket-cert: %w", err)
		}
	}
	defer func() {
		if err != nil {
			for _, s := range services {
				s.l.Close()
			}
		}
	}()
	add := func(name, address string, run func(net.Listener) error) {
		if err != nil {
			return
		}
		var l net.Listener
		if l, err = cli.Listen(ctx, address); l != nil {
			if name != "status" {
				l = p.headers.wrapListener(l, func(remote net.Addr, err error) { p.headerRefused(name, remote, err) })
			}
			services = append(services, service{name, l, run})
		} else if err != nil {
			err = fmt.Errorf("--%s: %w", name, err)
		}
	}
	add("listen", f.listen, func(l net.Listener) error { return p.server.Serve(p.late, l) })
	add("websocket", f.websocket, func(l net.Listener) error { return p.server.Serve(p.late, tunnel.ListenWebSocket(l, outer)) })
	add("status", f.status, func(l net.Listener) error { return cli.ServeHTTP(p.late, l, p.statusHandler()) })
	for _, text := range f.forward {
		address, to, _ := parseForward(text) // check has, too
		add("forward", address, func(l net.Listener) error {
			return new(group.Set).Serve(ctx, l, p.grace, func(g *group.Group, conn net.Conn) { p.forwardConn(g.Context(), conn, to) })
		})
	}
	if doorErr := p.addDoors(ctx, &f.doors, add); err == nil {
		err = doorErr
	}
	return services, err
}

// run runs the services until ctx ends or one of them fails, and drains.
func (p *program) run(ctx context.Context, end context.CancelFunc, services []service) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer p.events.start()()
	var wg sync.WaitGroup
	for _, s := range services {
		p.log.Info("listening", "for", s.name, "address", s.l.Addr().String())
		wg.Go(func() {
			if err := s.run(s.l); err != nil {
				fail(fmt.Errorf("%s: %w", s.name, err))
			}
		})
	}
	wg.Go(func() { p.watch.run(ctx, p.every) })
	if p.clusters != nil {
		wg.Go(func() { p.clusters.run(ctx) })
	}
	wg.Go(func() { p.state.follow(p.late, p.server) })
	<-ctx.Done()
	p.log.Info("draining", "grace", p.grace)
	grace, cancel := context.WithTimeout(p.late, p.grace)
	defer cancel()
	if err := p.server.Shutdown(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		p.log.Warn("drained", "error", err)
	}
	end()
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// replicaFlags are the flags about the other servers with the same state.
type replicaFlags struct {
	name, service string
	addresses     cli.List
}

func (f *replicaFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.name, "name", "", "`name` of this server among its replicas; default: the host's, and with --peers a random one")
	set.Var(&f.addresses, "peers", "`address` of the other replicas: host:port, whose name may stand for all of them, or a wss URL (a private authority of its certificate: in SSL_CERT_FILE); several are allowed")
	set.StringVar(&f.service, "peers-service", "", "`name` of a Service, in the namespace of the --secrets, whose endpoints are the replicas; instead of --peers")
	cli.Exclude(set, "peers-service", "peers")
}

func (f *replicaFlags) check(state *stateFlags) error {
	switch {
	case f.service != "" && state.secrets == "":
		return cli.Mistake("--peers-service goes with --secrets")
	case strings.ContainsFunc(f.name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == '|' }):
		return cli.Mistake("--name %q holds a space, a bar or a character that does not print", f.name)
	}
	return checkServers("--peers", f.addresses)
}

// configurePeers makes the server find its replicas.
func (f *replicaFlags) configurePeers(server *tunnel.Server, st *state) {
	server.Name = f.name
	if f.name == "" && len(f.addresses) == 0 { // several replicas may share a host
		server.Name, _ = os.Hostname()
	}
	switch st := st.secrets; {
	case len(f.addresses) > 0:
		server.Peers = tunnel.StaticPeers(f.addresses)
	case f.service != "":
		server.Peers = tunnelkube.EndpointSlices{Client: st.client, Namespace: st.namespace, Service: f.service,
			Error: func(err error) { st.log.Warn("peers", "error", err) }}
	}
}

// statusHandler serves the page for people and the paths for programs.
func (p *program) statusHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", &p.page)
	programs := p.server.StatusHandler()
	for _, path := range []string{"/healthz", "/readyz", "/status"} {
		mux.Handle(path, programs)
	}
	m := p.metrics
	mux.Handle("GET /metrics", management.MetricsHandler(append(m.gateways, m.tunnel, m.reviews, m.certificates, m.limiter.Refused, m.limiter.Waited)...))
	return mux
}
