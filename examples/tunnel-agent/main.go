// Tunnel-agent is the end of the tunnel beside a cluster: it dials out to a
// tunnel-server, and dials for it the targets that it was told to allow.
//
//	tunnel-agent -invitation invitation.env -state /var/lib/tunnel-agent
//
// The invitation is what "tunnel-server enroll CLUSTER -format env" prints. It
// may be in the environment as well. It is read when the agent has no valid
// certificate: to enrol an agent again that was revoked, or that was off for
// too long, put a new one into the file; there is nothing to restart. Where the
// server is stands in it, too, so keep it, or say so by -server.
//
// Without -allow the cluster's API server can be reached and nothing else:
//
//	-allow kubernetes.default.svc:443,10.0.0.0/8:22,*.monitoring.svc:9090
//
// An agent that is not in a pod knows no kubernetes.default.svc, and is told
// what it stands for:
//
//	-alias kubernetes.default.svc:443=127.0.0.1:6443
//
// The way out leads through the proxy of the environment (HTTPS_PROXY,
// HTTP_PROXY, ALL_PROXY, NO_PROXY), of -proxy, or with -proxy direct through
// none. A password is better off in the environment.
//
// With -authorized-keys the server may say which SSH public keys that file
// holds between two marks, by a payload named authorized_keys: who runs the
// server can then log in as the file's owner.
//
// On SIGTERM the server is told, and what is open lives on for -grace.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
)

func main() { cli.Main(run) }

type flags struct {
	invitation, state, proxy, keys, status string
	servers, allow, aliases                cli.List
	grace                                  time.Duration
}

func (f *flags) parse(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-agent", flag.ContinueOnError)
	set.StringVar(&f.invitation, "invitation", "", "`file` with the invitation; default: the environment")
	set.StringVar(&f.state, "state", "/var/lib/tunnel-agent", "`directory` of the key and the certificate")
	set.Var(&f.servers, "server", "`address` of the server: host:port, or a ws or wss URL; several are allowed; default: the invitation's")
	set.Var(&f.allow, "allow", "`pattern` host:port of targets that the server may reach; several are allowed; default kubernetes.default.svc:443")
	set.Var(&f.aliases, "alias", "`TARGET=ADDRESS` to dial instead of a target, which is then allowed; several are allowed")
	set.StringVar(&f.proxy, "proxy", "", "`URL` of the proxy that leads out, or direct; default: the environment's")
	set.StringVar(&f.keys, "authorized-keys", "", "`file` that takes SSH public keys from the server; default: none does")
	set.StringVar(&f.status, "status", "127.0.0.1:8081", "`address` of /healthz, /readyz and /status; empty for none")
	set.DurationVar(&f.grace, "grace", 30*time.Second, "how long open connections live on after a signal")
	positional, err := cli.Parse(set, args, stdout)
	if err == nil && len(positional) > 0 {
		err = cli.UsageError{Text: fmt.Sprintf("tunnel-agent: unexpected argument %q", positional[0])}
	}
	return err
}

// run is main without the process.
func run(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	var f flags
	if err := f.parse(args, stdout); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	agent, err := f.agent(log)
	if err != nil {
		return err
	}
	if _, err := agent.Credentials.Load(ctx); err != nil { // it would be tried for ever
		return fmt.Errorf("tunnel-agent: -state: %w", err)
	}
	l, err := cli.Listen(ctx, f.status)
	if err != nil {
		return fmt.Errorf("tunnel-agent: -status: %w", err)
	}
	// The status page lives until the last stream has ended.
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	page := make(chan error, 1)
	if l == nil {
		page <- nil
	} else {
		log.Info("listening", "for", "status", "address", l.Addr().String())
		go func() { page <- cli.ServeHTTP(late, l, agent.StatusHandler()) }()
	}
	err = agent.Run(ctx)
	end()
	return errors.Join(err, <-page)
}

func (f *flags) agent(log *slog.Logger) (*tunnel.Agent, error) {
	out, err := f.dialer()
	if err != nil {
		return nil, fmt.Errorf("tunnel-agent: -proxy: %w", err)
	}
	aliases := map[string]string{}
	for _, text := range f.aliases {
		from, to, ok := strings.Cut(text, "=")
		if !ok {
			return nil, cli.UsageError{Text: fmt.Sprintf("tunnel-agent: -alias %q is not TARGET=ADDRESS", text)}
		}
		aliases[from] = to
	}
	a := &tunnel.Agent{
		Servers:     f.servers,
		Dial:        out.DialContext,
		Credentials: tunnel.FileStore{Dir: f.state},
		Invitation:  f.invite,
		Targets:     tunnel.Targets{Allow: f.allow, Aliases: aliases},
		Grace:       f.grace,
		Program:     program(),
		Hooks:       hooks(log),
	}
	if f.grace == 0 {
		a.Grace = -1 // none, and not the default
	}
	if f.keys != "" {
		a.Payload = keysFile(f.keys).take
	}
	return a, nil
}

// dialer is the way out.
func (f *flags) dialer() (dialer.Dialer, error) {
	switch f.proxy {
	case "":
		return dialer.FromEnvironment()
	case "direct":
		return dialer.Direct{}, nil
	}
	u, err := dialer.ParseURL(f.proxy)
	if err != nil {
		return nil, err
	}
	return dialer.FromURL(u, nil)
}

// invite is called whenever there is something to enrol.
func (f *flags) invite(context.Context) (tunnel.Invitation, error) {
	if f.invitation != "" {
		return tunnel.ReadInvitation(f.invitation)
	}
	var lines []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "CAUSEWAY_") && !strings.Contains(v, "\n") {
			lines = append(lines, v)
		}
	}
	if len(lines) == 0 {
		return tunnel.Invitation{}, errors.New("no -invitation, and none in the environment")
	}
	return tunnel.ParseInvitation(strings.Join(lines, "\n"))
}

// program is what the server's log shows of this one.
func program() string {
	version := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return "tunnel-agent " + version
}

func hooks(log *slog.Logger) tunnel.AgentHooks {
	return tunnel.AgentHooks{
		Connected: func(server string, id tunnel.Identity) {
			log.Info("connected", "server", server, "cluster", id.Cluster, "agent", id.Agent)
		},
		Disconnected: func(server string, err error) { log.Info("disconnected", "server", server, "error", err) },
		Failed: func(server string, err error, retry time.Duration) {
			log.Warn("failed", "server", server, "error", err, "retry", retry)
		},
		Enrolled: func(id tunnel.Identity, until time.Time) {
			log.Info("enrolled", "cluster", id.Cluster, "agent", id.Agent, "until", until)
		},
		Renewed: func(id tunnel.Identity, until time.Time) { log.Info("renewed", "agent", id.Agent, "until", until) },
		Dialed: func(took time.Duration, err error) {
			if err == nil {
				return
			}
			// The text is what the server may know; the cause says more.
			var op *net.OpError
			errors.As(err, &op)
			log.Warn("dial", "error", err, "cause", op, "took", took)
		},
	}
}
