package server

import (
	"context"
	"errors"
	"flag"
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

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
	"github.com/causewayproject/causeway/tunnel/status"
)

type serveFlags struct {
	state                              *stateFlags
	listen, websocket, tlsCert, tlsKey string
	status                             string
	forward, advertise                 cli.List
	grace, watch                       time.Duration
	doors                              doorFlags
	replicas                           replicaFlags
}

func (f *serveFlags) parse(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server", flag.ContinueOnError)
	f.state = addStateFlags(set)
	set.StringVar(&f.listen, "listen", ":8443", "`address` for agents; empty for none")
	set.StringVar(&f.websocket, "websocket", "", "`address` for agents that come by WebSocket, for a load balancer in front; default none")
	set.StringVar(&f.tlsCert, "websocket-cert", "", "PEM `file`: the WebSocket address is wss with this certificate")
	set.StringVar(&f.tlsKey, "websocket-key", "", "PEM `file` of its key")
	set.Var(&f.advertise, "advertise", "`address` that enroll gives to agents: host:port, or a wss URL; several are allowed")
	set.Var(&f.forward, "forward", "`LISTEN=CLUSTER/HOST:PORT`: a listener, and what its connections are led to; several are allowed")
	set.StringVar(&f.status, "status", "127.0.0.1:8080", "`address` of a page for operators at /, and of /healthz, /readyz and /status; empty for none")
	f.doors.add(set)
	f.replicas.add(set)
	set.DurationVar(&f.grace, "grace", 30*time.Second, "how long open connections live on after a signal")
	set.DurationVar(&f.watch, "watch", 2*time.Second, "how often to look for what commands changed in the -state")
	positional, err := cli.Parse(set, args, stdout)
	switch {
	case err != nil:
		return err
	case len(positional) > 0:
		return cli.UsageError{Text: fmt.Sprintf("tunnel-server: unexpected argument %q", positional[0])}
	case f.listen == "" && f.websocket == "":
		return cli.UsageError{Text: "tunnel-server: no agent can connect: one of -listen and -websocket is required"}
	case f.watch <= 0:
		return cli.UsageError{Text: "tunnel-server: -watch is not above zero"}
	case (f.tlsCert == "") != (f.tlsKey == ""), f.tlsCert != "" && f.websocket == "":
		return cli.UsageError{Text: "tunnel-server: -websocket-cert and -websocket-key go together, with -websocket"}
	}
	if err := checkServers("tunnel-server: -advertise", f.advertise); err != nil {
		return err
	}
	if err := f.doors.check(); err != nil {
		return err
	}
	return f.replicas.check(f.state)
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
	state        state
	server       *tunnel.Server
	tickets      *tickets
	byToken      authenticator // nil: there are no tokens
	doorLog      *doorLog
	grace, every time.Duration
	watch        *watcher
	page         status.Handler
	// late ends after the grace. The server and the status page run until then.
	late context.Context
}

func serveCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f serveFlags
	if err := f.parse(args, stdout); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	st, err := f.state.open(log)
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
		log: log, state: st, server: server, tickets: tickets, byToken: byToken, doorLog: newDoorLog(log),
		grace: f.grace, every: f.watch, late: late,
	}
	p.watch = newWatcher(p)
	p.page.Fleet = server.Fleet
	server.Payloads = p.watch.payloads
	server.Hooks = serverHooks(p.log)
	services, err := p.listen(ctx, &f)
	if err != nil {
		return err
	}
	return p.run(ctx, end, services)
}

// openState reads the state, and writes to it what commands need to know.
func (f *serveFlags) openState(ctx context.Context, st state) (*tunnel.Server, *tickets, error) {
	server, err := st.server(ctx)
	if err == nil && len(f.advertise) > 0 {
		err = saveServers(ctx, st, f.advertise)
	}
	if err == nil {
		err = saveGateway(ctx, st, &f.doors)
	}
	t := new(tickets)
	if err == nil {
		err = loadTickets(ctx, st, t)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("tunnel-server: state: %w", err)
	}
	return server, t, nil
}

// listen opens all listeners before anything runs, so that a wrong address ends the
// program at once.
func (p *program) listen(ctx context.Context, f *serveFlags) (services []service, err error) {
	websocket, err := f.websocketListener(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, s := range services {
				s.l.Close()
			}
		}
	}()
	addListener := func(name string, listen func() (net.Listener, error), run func(net.Listener) error) {
		if err != nil {
			return
		}
		var l net.Listener
		if l, err = listen(); l != nil {
			services = append(services, service{name, l, run})
		} else if err != nil {
			err = fmt.Errorf("tunnel-server: -%s: %w", name, err)
		}
	}
	add := func(name, address string, run func(net.Listener) error) {
		addListener(name, func() (net.Listener, error) { return cli.Listen(ctx, address) }, run)
	}
	add("listen", f.listen, func(l net.Listener) error { return p.server.Serve(p.late, l) })
	addListener("websocket", websocket, func(l net.Listener) error { return p.server.Serve(p.late, l) })
	add("status", f.status, func(l net.Listener) error { return cli.ServeHTTP(p.late, l, p.statusHandler()) })
	for _, text := range f.forward {
		to, parseErr := parseForward(text)
		if parseErr != nil {
			return services, parseErr
		}
		add("forward", to.listen, func(l net.Listener) error { return p.forward(ctx, l, to) })
	}
	if doorErr := p.addDoors(ctx, &f.doors, addListener); err == nil {
		err = doorErr
	}
	return services, err
}

// websocketListener returns a function that listens for agents by WebSocket, or returns
// nil if there is no address.
func (f *serveFlags) websocketListener(ctx context.Context) (func() (net.Listener, error), error) {
	var t tunnel.WebSocket
	if f.tlsCert != "" {
		var err error
		if t.TLS, err = serverTLS(f.tlsCert, f.tlsKey); err != nil {
			return nil, fmt.Errorf("tunnel-server: -websocket-cert: %w", err)
		}
	}
	return func() (net.Listener, error) {
		if f.websocket == "" {
			return nil, nil
		}
		return t.Listen(ctx, f.websocket)
	}, nil
}

// run runs the services until ctx ends or one of them fails, and drains.
func (p *program) run(ctx context.Context, end context.CancelFunc, services []service) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	for _, s := range services {
		p.log.Info("listening", "for", s.name, "address", s.l.Addr().String())
		wg.Go(func() {
			if err := s.run(s.l); err != nil {
				fail(fmt.Errorf("tunnel-server: %s: %w", s.name, err))
			}
		})
	}
	wg.Go(func() { p.watch.run(ctx, p.every) })
	wg.Go(func() { p.page.Run(ctx) })
	if st, ok := p.state.(follower); ok {
		wg.Go(func() { st.follow(p.late, p.server) })
	}
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

func serverHooks(log *slog.Logger) tunnel.Hooks {
	return tunnel.Hooks{
		Connected: func(s tunnel.SessionInfo) {
			log.Info("connected", "cluster", s.Cluster, "agent", s.Agent, "session", s.ID, "remote", s.Remote)
		},
		Disconnected: func(s tunnel.SessionInfo, err error) {
			log.Info("disconnected", "cluster", s.Cluster, "agent", s.Agent, "session", s.ID, "error", err)
		},
		Refused:  (&refusalLog{log: log}).refused,
		Enrolled: func(id tunnel.Identity) { log.Info("enrolled", "cluster", id.Cluster, "agent", id.Agent) },
		Renewed: func(id tunnel.Identity, until time.Time) {
			log.Info("renewed", "cluster", id.Cluster, "agent", id.Agent, "until", until)
		},
		Delivered: func(id tunnel.Identity, name string, err error) {
			logPayload(log, "payload", err, "cluster", id.Cluster, "agent", id.Agent, "name", name)
		},
	}
}

// replicaFlags are the flags about the other servers with the same state.
type replicaFlags struct {
	name, service string
	addresses     cli.List
}

func (f *replicaFlags) add(set *flag.FlagSet) {
	set.StringVar(&f.name, "name", "", "`name` of this server among its replicas; default: the host's, and with -peers a random one")
	set.Var(&f.addresses, "peers", "`address` of the other replicas: host:port, whose name may stand for all of them, or a wss URL (a private authority of its certificate: in SSL_CERT_FILE); several are allowed")
	set.StringVar(&f.service, "peers-service", "", "`name` of a Service, in the namespace of the -secrets, whose endpoints are the replicas; instead of -peers")
}

func (f *replicaFlags) check(state *stateFlags) error {
	switch {
	case f.service != "" && state.secrets == "":
		return cli.UsageError{Text: "tunnel-server: -peers-service goes with -secrets"}
	case f.service != "" && len(f.addresses) > 0:
		return cli.UsageError{Text: "tunnel-server: -peers and -peers-service exclude each other"}
	case strings.ContainsFunc(f.name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == '|' }):
		return cli.UsageError{Text: fmt.Sprintf("tunnel-server: -name %q holds a space, a bar or a character that does not print", f.name)}
	}
	return checkServers("tunnel-server: -peers", f.addresses)
}

// configurePeers makes the server find its replicas.
func (f *replicaFlags) configurePeers(server *tunnel.Server, st state) {
	server.Name = f.name
	if f.name == "" && len(f.addresses) == 0 { // several replicas may share a host
		server.Name, _ = os.Hostname()
	}
	switch st, _ := st.(*secretState); {
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
	return mux
}
