// Package agent is the tunnel's end beside a cluster: the program causeway-agent.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/follow"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/internal/smallfile"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/prometheus"
)

const help = `Runs the tunnel's end beside a cluster. It connects to a server (causeway server), and dials
for it the targets that --allow names.

The invitation is the output of "causeway enroll CLUSTER --format env". It may be in the
environment instead. It is read when the agent has no valid certificate: to enrol an agent
again that was revoked, or that was off for too long, put a new invitation into the file; a
restart is not needed. The invitation also holds the server's address, which is kept in
--state, beside the certificate: an invitation that is there later, and names another
address, counts more, and --server most.

Without --allow, only the cluster's API server can be reached. An agent that does not run
in a pod cannot resolve kubernetes.default.svc, and needs an --alias.

The agent connects to the server through the proxy of --proxy, or else of the invitation
(causeway enroll --proxy), or else of the environment (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY,
NO_PROXY); with --proxy direct through none. It reads the invitation's proxy for each
connection: keep that file, and change a password there. Targets and the API server are
never behind a proxy. Put a proxy's password into the environment or the invitation: other
users see the arguments of a process.

In a pod, --secret has a Secret keep the key and the certificate instead of a volume. It
must exist, and a Role must allow get and update of it: the manifest of causeway enroll has
all that. If it is lost, the agent enrols again, which takes a new invitation. Any number of
pods share the Secret, and one invitation: together they are one agent, and connections go
through all of them. Each needs a name, --replica.

With --join-token, the agent enrols with the token of its ServiceAccount in that file, which
the kubelet keeps current, and the invitation has no token: it holds no secret. The file is
read for each enrolment. The server has to know the cluster (causeway join add).

With --authorized-keys, the server may set the SSH public keys between two marks in that
file, by a payload named authorized_keys: the server's operators can then log in as the
file's owner.

On SIGTERM the server is told, and open connections live on for --grace. The status is 0
after that, 1 if something failed, and 2 for a mistake on the command line.

Each flag may be a variable instead: --allow is CAUSEWAY_ALLOW. A flag counts more, also
than the variable of its alternative (--state, --secret). A variable that is empty is an empty
value, and not the default; one that is no flag is ignored.

Usage:
  causeway-agent [flags]
  causeway-agent version

Examples:
  causeway-agent --invitation invitation.env --state /var/lib/tunnel-agent
  causeway-agent --invitation invitation.env --allow kubernetes.default.svc:443,10.0.0.0/8:22,*.monitoring.svc:9090
  causeway-agent --invitation invitation.env --alias kubernetes.default.svc:443=127.0.0.1:6443

Flags:
`

type flags struct {
	invitation, joinToken, state, secret, replica, proxy, noProxy, keys, status string

	servers, allow, aliases cli.List
	targets                 *follow.File // of --allow; nil if it is no file
	grace                   time.Duration
	log                     logs.Flags
}

func (f *flags) add(set *pflag.FlagSet) {
	set.StringVar(&f.invitation, "invitation", "", "`file` with the invitation; default: the environment")
	set.StringVar(&f.joinToken, "join-token", "", "`file` with the ServiceAccount's token to enrol with; the invitation then has none")
	set.StringVar(&f.state, "state", "/var/lib/tunnel-agent", "`directory` of the key and the certificate")
	set.StringVar(&f.secret, "secret", "", "`name` of a Secret in the pod's namespace that has them instead")
	set.StringVar(&f.replica, "replica", "", "`name` of this pod among those that share --secret; default: the host's name")
	set.Var(&f.servers, "server", "`address` of the server: host:port, or a ws or wss URL; several are allowed; default: the invitation's")
	set.Var(&f.allow, "allow", "`pattern` host:port of targets that the server may reach; several are allowed; default kubernetes.default.svc:443. Or file:PATH of a file with a pattern a line, which may change")
	set.Var(&f.aliases, "alias", "`TARGET=ADDRESS` to dial instead of a target, which is then allowed; several are allowed")
	set.StringVar(&f.proxy, "proxy", "", "`URL` of the proxy that leads out, or direct; default: the invitation's, or the environment's")
	set.StringVar(&f.noProxy, "no-proxy", "", "`list` of hosts, as in NO_PROXY, that --proxy is not for")
	set.StringVar(&f.keys, "authorized-keys", "", "`file` that takes SSH public keys from the server; default: none does")
	set.StringVar(&f.status, "status", "127.0.0.1:8081", "`address` of /healthz, /readyz, /status and /metrics; empty for none")
	set.DurationVar(&f.grace, "grace", 30*time.Second, "how long open connections live on after a signal")
	f.log.Add(set)
	cli.Exclude(set, "secret", "state")
}

// Run runs the agent until ctx ends. Its arguments and streams are those of a process.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if slices.Equal(args, []string{"version"}) {
		_, err := fmt.Fprintln(stdout, cli.Build("causeway-agent"))
		return err
	}
	var f flags
	set := pflag.NewFlagSet("causeway-agent", pflag.ContinueOnError)
	f.add(set)
	set.Usage = func() {}
	err := cli.Parse(set, args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, err = fmt.Fprint(stdout, help+set.FlagUsages())
	case err == nil && set.NArg() > 0:
		err = cli.Mistake("unexpected argument %q", set.Arg(0))
	case err == nil:
		err = f.run(ctx, stderr)
	}
	return cli.NameSources(set, err)
}

func (f *flags) run(ctx context.Context, stderr io.Writer) error {
	log := f.log.New(stderr)
	dials := &logs.Sampler{Log: log, PerKind: 10}
	defer dials.Start()()
	agent, err := f.newAgent(dials)
	if err != nil {
		return err
	}
	counted := &prometheus.Agent{Status: agent.Status}
	agent.Hooks = counted.Hooks(agent.Hooks)
	if f.secret == "" { // the API server may be away for a while
		if _, err := agent.Credentials.Load(ctx); err != nil { // it would be tried for ever
			return fmt.Errorf("--state: %w", err)
		}
	}
	// The status page lives until the last stream has ended.
	stopPage, err := cli.StartPage(ctx, log, "status", f.status, statusHandler(agent, counted))
	switch {
	case errors.Is(err, syscall.EADDRINUSE): // others of the machine must not keep the agent from connecting
		log.Warn("there is no status page: its address is in use", "address", f.status)
	case err != nil:
		return fmt.Errorf("--status: %w", err)
	}
	stop := cli.Go(ctx, func(ctx context.Context) {
		follow.Run(ctx, follow.Every, func() { // on SIGHUP, too, which must not end the agent
			if f.targets != nil {
				f.targets.Check(log, "targets", "allow")
			}
		})
	})
	err = cli.FieldMistake(agent.Run(ctx), // it returns what can't work
		"tunnel: config: field Servers of the Agent", "--server", "tunnel: config: field Replica of the Agent", "--replica",
		"tunnel: config: field Allow", "--allow", "tunnel: config: field Aliases", "--alias")
	stop()
	return errors.Join(err, stopPage())
}

// statusHandler serves the agent's own paths, and /metrics.
func statusHandler(a *tunnel.Agent, counted *prometheus.Agent) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", a.StatusHandler())
	mux.Handle("GET /metrics", metrics.Handler(nil, counted))
	return mux
}

func (f *flags) newAgent(dials *logs.Sampler) (*tunnel.Agent, error) {
	out, err := f.newDialer(dials.Log)
	if err != nil {
		return nil, cli.Mistake("%v", err)
	}
	if f.grace < 0 {
		return nil, cli.Mistake("--grace must not be less than zero")
	}
	var credentials tunnel.CredentialStore = tunnel.FileStore{Dir: f.state}
	if f.secret != "" {
		api, err := newPodClient()
		if err != nil {
			return nil, cli.Mistake("--secret: %v", err)
		}
		credentials = &secretStore{api: api, name: f.secret}
	}
	replica, err := f.replicaName()
	if err != nil {
		return nil, err
	}
	aliases := map[string]string{}
	for _, text := range f.aliases {
		from, to, ok := strings.Cut(text, "=")
		if !ok {
			return nil, cli.Mistake("--alias %s is not TARGET=ADDRESS", cli.Quote(text))
		}
		aliases[from] = to
	}
	a := &tunnel.Agent{
		Servers:     f.servers,
		Dial:        out.DialContext,
		Credentials: credentials,
		Replica:     replica,
		Invitation:  f.readInvitation,
		Targets:     tunnel.Targets{Aliases: aliases},
		Grace:       cmp.Or(f.grace, -1), // none, and not the default
		Budget:      &tunnel.Budget{Bytes: cli.MemoryShare()},
		Program:     cli.Version("causeway-agent"),
		Hooks:       agentHooks(dials, f.joinToken != ""),
	}
	if f.targets, err = openTargets(a, f.allow); err != nil {
		return nil, err
	}
	a.Payload = func(_ context.Context, p tunnel.Payload) error {
		err := keysFile(f.keys).takePayload(p)
		if err != nil {
			dials.Log.Warn("payload refused", "name", p.Name, "error", err)
		}
		return err
	}
	return a, nil
}

// maxReplica is how much of a host's name is used, in bytes.
const maxReplica = 63

// replicaName returns the name of this process among those that share the Secret; "" if
// it shares nothing.
func (f *flags) replicaName() (string, error) {
	switch {
	case f.replica != "" && f.secret == "":
		return "", cli.Mistake("--replica is for --secret, which is missing: only a Secret can be shared")
	case f.replica != "" || f.secret == "":
		return f.replica, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", cli.Mistake("--replica: %v", err)
	}
	return host[:min(len(host), maxReplica)], nil
}

// newDialer returns the dialer that connects to the server.
func (f *flags) newDialer(log *slog.Logger) (dialer.Dialer, error) {
	switch {
	case f.proxy != "":
		return proxySetting{f.proxy, f.noProxy}.newDialer("--proxy")
	case f.noProxy != "":
		return nil, errors.New("--no-proxy is for --proxy, which is missing")
	}
	if f.invitation == "" {
		return fromEnvironment()
	}
	return &fileProxy{file: f.invitation, environment: fromEnvironment, log: log}, nil
}

// readInvitation is called whenever the agent has to enrol.
func (f *flags) readInvitation(context.Context) (tunnel.Invitation, error) {
	if f.joinToken != "" {
		return f.readJoin()
	}
	if f.invitation != "" {
		i, err := tunnel.ReadInvitation(f.invitation)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; \"causeway enroll CLUSTER --format env\" prints an invitation", err)
		}
		return i, err
	}
	if os.Getenv("CAUSEWAY_TOKEN") == "" {
		return tunnel.Invitation{}, errors.New("no --invitation, and no CAUSEWAY_TOKEN in the environment")
	}
	return tunnel.ParseInvitation(environmentLines())
}

// environmentLines returns the variables that may be an invitation's.
func environmentLines() string {
	var lines []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "CAUSEWAY_") && !strings.Contains(v, "\n") {
			lines = append(lines, v)
		}
	}
	return strings.Join(lines, "\n")
}

// agentHooks write to the log. A server can ask for thousands of dials in a second. joins
// says that the agent enrols with a token of its ServiceAccount.
func agentHooks(dials *logs.Sampler, joins bool) tunnel.AgentHooks {
	log := dials.Log
	return tunnel.AgentHooks{
		Connected: func(server string, id tunnel.Identity) {
			log.Info("connected", "server", server, "cluster", id.Cluster, "agent", id.Agent)
		},
		Disconnected: func(server string, err error) { log.Info("disconnected", "server", server, "error", err) },
		Failed: func(server string, err error, retry time.Duration) {
			e, ok := errors.AsType[*tunnel.Error](err)
			switch revoked := ok && e.Code == tunnel.CodeRevoked; {
			case revoked && joins:
				log.Warn("this agent was revoked: it joins again with the next token, if the server lets the cluster's agents join", "server", server, "retry", retry)
			case revoked:
				log.Warn("this agent was revoked: enroll it again, with a new invitation (causeway enroll)", "server", server, "retry", retry)
			default:
				log.Warn("failed", "server", server, "error", err, "retry", retry)
			}
		},
		Enrolled: func(id tunnel.Identity, until time.Time) {
			log.Info("enrolled", "cluster", id.Cluster, "agent", id.Agent, "until", until)
		},
		Renewed: func(id tunnel.Identity, until time.Time) {
			log.Info("renewed", "cluster", id.Cluster, "agent", id.Agent, "until", until)
		},
		Dialed: func(took time.Duration, err error) { logDial(dials, took, err) },
	}
}

func logDial(dials *logs.Sampler, took time.Duration, err error) {
	if err == nil {
		dials.Log.Debug("dialed", "duration", took)
		return
	}
	reason, cause := "", error(nil)
	if e, ok := errors.AsType[*tunnel.Error](err); ok {
		reason = e.Code.String()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok { // the server gets the error's text, too; this says more
		cause = op
	}
	dials.Write(slog.LevelWarn, "dial failed", "", reason, "error", err, "cause", cause, "duration", took)
}

// readJoin returns the invitation with the token of --join-token in it.
func (f *flags) readJoin() (tunnel.Invitation, error) {
	token, err := smallfile.Read(f.joinToken, 1)
	if err != nil {
		return tunnel.Invitation{}, fmt.Errorf("--join-token: %w", err)
	}
	trimmed := strings.TrimSpace(string(token))
	if trimmed == "" || strings.ContainsAny(trimmed, " \t\r\n") {
		return tunnel.Invitation{}, errors.New("--join-token: the file has no token")
	}
	text := environmentLines()
	if f.invitation != "" {
		invitation, err := smallfile.Read(f.invitation, 1)
		if err != nil {
			return tunnel.Invitation{}, fmt.Errorf("--invitation: %w", err)
		}
		text = string(invitation)
	}
	variables, _ := readVariables(text) // ParseInvitation reads it again, and tells what is wrong
	if variables["CAUSEWAY_TOKEN"] != "" {
		return tunnel.Invitation{}, errors.New("there are two tokens, --join-token and the invitation's CAUSEWAY_TOKEN: remove one")
	}
	return tunnel.ParseInvitation(text + "\nCAUSEWAY_TOKEN=" + trimmed)
}

// openTargets gives the agent the targets of --allow. If they are in a file, it is returned.
func openTargets(a *tunnel.Agent, allow []string) (*follow.File, error) {
	switch {
	case !slices.ContainsFunc(allow, func(v string) bool { return strings.HasPrefix(v, "file:") }):
		a.Targets.Allow = allow
		return nil, nil
	case len(allow) > 1:
		return nil, cli.Mistake("--allow: file:PATH has to be alone: the file has all patterns")
	}
	path := strings.TrimPrefix(allow[0], "file:")
	targets := a.Targets // Run reads the Agent's
	file, err := follow.Open(path, func(text []byte) (err error) {
		if targets.Allow, err = readLines(text); err == nil {
			err = a.SetTargets(targets)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--allow: %w", err)
	}
	a.Targets.Allow = targets.Allow
	return file, nil
}

// readLines returns the patterns of a file, one a line. Empty lines and those that begin with
// "#" are left out. A file without a pattern is an error.
func readLines(text []byte) (patterns []string, err error) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			patterns = append(patterns, line)
		}
	}
	if patterns == nil {
		return nil, errors.New("there is no line with a pattern in it")
	}
	return patterns, nil
}
