package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/causewayproject/causeway/examples/deploy"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/internal/yamledit"
	"github.com/causewayproject/causeway/tunnel"
)

// maxPayload is the size of a message of the tunnel, less room for the name.
const maxPayload = 1<<20 - 1<<10

const enrollLong = `Prints what starts an agent of CLUSTER, such as default/prod. It holds a token: the first
program that uses it becomes the agent. With --agents N the first N do, each on a machine of
its own. The pods of a manifest share one Secret, and count as one agent.

--show makes no token: it prints the newest one of CLUSTER that can still be used.

With --join there is no token: the manifest holds no secret, can be kept in Git, and is good
for any number of agents. The agent joins with the token of its ServiceAccount, once the
cluster is registered (causeway join add).

With --proxy, the agent connects through that proxy, whatever its environment says, in each
format; the password is where the token is. Other users see the arguments of a process: put
a URL with a password into the variable CAUSEWAY_ENROLL_PROXY. --no-proxy has the servers that the
agent reaches directly; names of the cluster need no entry, and neither targets nor the
cluster's API server are ever behind the proxy.

The manifest needs no volume: the agent keeps its certificate in a Secret, which its pods
share. There are two pods, or --replicas: connections go through all of them. The agent's
NetworkPolicy allows DNS, the ports of the servers and of the proxy, 443 and 6443 of the API
server, and those of --allow. A control plane without a network plugin takes an agent with
--host-network. It then uses the node's network and DNS, in a namespace whose pod security is
privileged; its status is on the node's loopback, port 8081; and it tolerates nodes that are
not ready, and those of the control plane.
It has no NetworkPolicy, since none would apply to it. A node has room for one such pod: a
cluster of one node takes --replicas 1. If the plugin replaces kube-proxy, add
--api-server, since the API server's Service is not there either.`

const enrollExample = `  causeway enroll default/prod                    # a command line
  causeway enroll default/prod --format env >invitation
  causeway enroll default/prod --format systemd   # or secret, manifest
  causeway enroll default/prod --format manifest --join # no secret in it
  causeway enroll default/prod --agents 3 --life 24h --format env >invitation
  causeway enroll default/prod --show --format manifest
  causeway enroll default/prod --secrets tunnel-server/tunnel --kubeconfig admin.conf
  CAUSEWAY_ENROLL_PROXY=http://user:p%40ss@proxy:3128 causeway enroll default/prod --format manifest`

func enrollCommand() *cobra.Command {
	e := new(enrollment)
	cmd := &cobra.Command{
		Use:     "enroll CLUSTER",
		Short:   "print what starts an agent of CLUSTER: an invitation",
		Long:    enrollLong,
		Example: enrollExample,
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.run(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	set := cmd.Flags()
	e.state = addStateFlags(set)
	set.Var(&e.servers, "server", "`address` of the server: host:port, or a wss URL; several are allowed; default: what the server was told to --advertise")
	command.Choice(cmd, &e.format, "format", "command", "what to print", slices.Sorted(maps.Keys(formats))...)
	set.BoolVar(&e.join, "join", false, "print a manifest without a token: the agent joins with that of its ServiceAccount (causeway join add)")
	set.DurationVar(&e.life, "life", time.Hour, "how long the token is valid")
	set.IntVar(&e.agents, "agents", 1, "how many agents the token is for, each with a state of its own: 1 to 1000")
	set.BoolVar(&e.show, "show", false, "print the cluster's newest token that can still be used, and make none")
	set.StringVar(&e.agent.Image, "image", "causeway-agent:latest", "the `image` of the agent in a manifest")
	set.StringVar(&e.agent.Namespace, "namespace", "tunnel-agent", "the `namespace` of the agent in a manifest, which makes it")
	set.StringVar(&e.proxy, "proxy", "", "`URL` of the proxy that leads the agent out, or direct; default: its environment's")
	set.Var(&e.noProxy, "no-proxy", "`list` of hosts, as in NO_PROXY, that --proxy is not for")
	set.Var(&e.allow, "allow", "`pattern` host:port of targets, for the agent's --allow; several are allowed; not in env and secret")
	e.agent.Pod.addFlags(set)
	cli.Exclude(set, "join", "life", "agents", "show")
	cli.Exclude(set, "show", "life", "agents")
	return cmd
}

// enrollment is the flags of enroll.
type enrollment struct {
	state   *stateFlags
	servers cli.List
	format  string
	join    bool
	life    time.Duration
	agents  int
	show    bool
	proxy   string
	noProxy cli.List
	allow   cli.List
	agent   agentConfig
}

func (e *enrollment) run(ctx context.Context, cluster string, stdout io.Writer) error {
	switch {
	case e.life < time.Second: // a token says its end in seconds
		return cli.Mistake("--life must be at least 1s, such as 1h")
	case e.agents < 1 || e.agents > 1000:
		return cli.Mistake("--agents must be from 1 to 1000")
	}
	if err := cmp.Or(checkServers("--server", e.servers), e.checkAgent()); err != nil {
		return err
	}
	st, err := e.state.open(ctx)
	if err != nil {
		return err
	}
	server, err := st.server(ctx) // it serves nothing, and need not be closed
	if err != nil {
		return fmt.Errorf("%s: %w", e.state, err)
	}
	if len(e.servers) == 0 {
		if e.servers, err = advertisedServers(ctx, st); err != nil {
			return err
		}
	}
	if len(e.servers) == 0 {
		return cli.Mistake("the server's address is unknown: set --server here, or --advertise of the server")
	}
	if e.join {
		return e.printJoin(ctx, st, server, cluster, stdout)
	}
	if e.agent.Invitation, err = e.invite(ctx, st, server, cluster); err != nil {
		return err
	}
	e.agent.Invitation.Servers = e.servers
	return formats[e.format](stdout, e.agent)
}

// invite returns a new invitation, or with --show the newest one that there is.
func (e *enrollment) invite(ctx context.Context, st *state, server *tunnel.Server, cluster string) (tunnel.Invitation, error) {
	if e.show {
		open, err := server.Invitations(ctx, cluster)
		if err == nil && len(open) == 0 {
			err = fmt.Errorf("no invitation of cluster %q can be used: all have ended, or were used or revoked. Without --show, enroll makes one", cluster)
		}
		if err != nil {
			return tunnel.Invitation{}, err
		}
		return open[len(open)-1], nil
	}
	inv, err := server.InviteAgents(ctx, cluster, e.agents, e.life)
	if err != nil {
		return inv, err
	}
	if err := noteCluster(ctx, st, cluster); err != nil {
		return inv, fmt.Errorf("%s: %w", e.state, err)
	}
	return inv, nil
}

// checkAgent reads the flags that are for the agent.
func (e *enrollment) checkAgent() (err error) {
	switch {
	case e.join && e.format != "manifest":
		return cli.Mistake("--join is for --format manifest")
	case e.join && strings.Contains(e.proxy, "@"):
		return cli.Mistake("--join makes a manifest without a secret, and the proxy has a user or a password: leave it out, and give the agent CAUSEWAY_PROXY from a Secret")
	case len(e.allow) > 0 && (e.format == "env" || e.format == "secret"):
		return cli.Mistake("--allow is an argument of the agent: with --format %s, give it there", e.format)
	case e.format != "manifest" && e.agent.Pod != podFlags{replicas: defaultReplicas}:
		return cli.Mistake("--host-network, --api-server and --replicas are for --format manifest")
	}
	if err := quote.CheckImage(e.agent.Image); err != nil {
		return cli.Mistake("--image %v", err)
	}
	if e.format == "manifest" || e.format == "secret" {
		if len(validation.IsDNS1123Label(e.agent.Namespace)) > 0 {
			return cli.Mistake("--namespace %q is not the name of a namespace", e.agent.Namespace)
		}
		if strings.HasPrefix(e.agent.Namespace, "kube-") || e.agent.Namespace == "default" {
			return cli.Mistake("--namespace %s is others', and the manifest sets the pod security of its namespace: want one for the agent alone", e.agent.Namespace)
		}
	}
	var allowErr error
	e.agent.Proxy, err = readAgentProxy(e.proxy, e.noProxy)
	e.agent.Allow, allowErr = readTargets(e.allow)
	return cmp.Or(err, allowErr, e.agent.Pod.check())
}

// An agent that has not enrolled can be revoked, too: a Store may have forgotten it.
func revokeCommand() *cobra.Command {
	var all bool
	cmd := stateCommand(&cobra.Command{
		Use:   "revoke CLUSTER AGENT",
		Short: "end an agent of CLUSTER, or all, for good",
		Long: `Ends AGENT of CLUSTER, for good. The server's log, its page and /status have the names.

With --all instead of AGENT it ends all agents of CLUSTER that have enrolled until now,
connected or not, all its invitations, and the tickets of its clients. Invitations and
tickets that are made later can be used.

An agent of a cluster that is registered (causeway join) joins again with the next token of
its ServiceAccount, as another agent. To keep it out, remove the registration before, and
wait until each server has logged that.`,
		Example: `  causeway revoke default/prod k3w7hq2nxy5zr4ta
  causeway revoke default/prod --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) == 2:
				return cli.Mistake("AGENT %q and --all: want one of them", args[1])
			case all && len(args) == 1:
				return nil
			case len(args) == 1, len(args) == 2 && args[1] == "":
				return cli.Mistake("AGENT is missing; to end all agents of the cluster, give --all in its place")
			}
			return command.Args(cmd, args)
		},
	}, func(cmd *cobra.Command, f *stateFlags, st *state, args []string) error {
		server, err := st.server(cmd.Context())
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		id := tunnel.Identity{Cluster: args[0]}
		done := fmt.Sprintf("all agents of cluster %q that have enrolled until now are revoked, and its invitations and tickets\n", id.Cluster)
		if len(args) == 1 { // whatever CAUSEWAY_REVOKE_ALL says
			err = server.RevokeCluster(cmd.Context(), id.Cluster)
		} else {
			id.Agent = args[1]
			done = fmt.Sprintf("agent %q of cluster %q is revoked, whether or not it ever connected: /status of the server lists those that are connected\n", id.Agent, id.Cluster)
			err = server.Revoke(cmd.Context(), id)
		}
		if err != nil {
			return err
		}
		warnUnknown(cmd.Context(), st, id.Cluster, id.Agent, cmd.ErrOrStderr())
		if _, err := readJoin(cmd.Context(), st, id.Cluster); !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: a token of a ServiceAccount lets agents of cluster %q join again, revoked or not. To keep them out: causeway join remove %[1]s, wait until each server has logged that, then revoke\n", id.Cluster)
		}
		_, err = io.WriteString(cmd.OutOrStdout(), done)
		return err
	})
	cmd.Flags().BoolVar(&all, "all", false, "end all agents, invitations and tickets of CLUSTER that there are until now")
	return cmd
}

func payloadCommand() *cobra.Command {
	var force bool
	cmd := stateCommand(&cobra.Command{
		Use:                   "payload CLUSTER NAME <FILE",
		DisableFlagsInUseLine: true, // they would stand behind <FILE
		Short:                 "hand the agents of CLUSTER data, such as SSH keys",
		Long: `Sends the data on standard input, as NAME, to the connected agents of CLUSTER, and to each
agent that connects later. Without data, which wants --force, they lose what they had of NAME.`,
		Example: "  causeway payload default/prod authorized_keys <id_ed25519.pub",
		Args:    command.Args,
	}, func(cmd *cobra.Command, _ *stateFlags, st *state, args []string) error {
		if err := checkCluster(args[0]); err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxPayload+1))
		if err != nil {
			return err
		}
		switch {
		case len(data) > maxPayload:
			return fmt.Errorf("standard input has more than %d bytes", maxPayload)
		case len(data) == 0 && !force:
			return fmt.Errorf("standard input is empty: the agents of cluster %q would lose what they have of %q; --force takes it away", args[0], args[1])
		}
		warnUnknown(cmd.Context(), st, args[0], "", cmd.ErrOrStderr())
		if args[1] != "authorized_keys" {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: causeway-agent takes only a payload named authorized_keys, and refuses %q\n", args[1])
		}
		if err := st.setPayload(cmd.Context(), args[0], tunnel.Payload{Name: args[1], Data: data}); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the agents of cluster %q get %q, %d bytes; the server's log says who took it\n", args[0], args[1], len(data))
		return err
	})
	cmd.Flags().BoolVar(&force, "force", false, "take away what the agents have of NAME, if standard input is empty")
	return cmd
}

// agentConfig is the data of the formats.
type agentConfig struct {
	Invitation       tunnel.Invitation
	Proxy            agentProxy
	Allow            []targetPattern
	Image, Namespace string
	Pod              podFlags
	Audience         string // of the token to join with; "": the invitation has a token
}

// Lines returns the variables of the invitation and of the proxy, as quote.EnvLine
// returns them.
func (d agentConfig) Lines() []string {
	return append(strings.Split(strings.TrimSpace(d.Invitation.Reveal()), "\n"), d.Proxy.lines()...)
}

// Agents says how many agents the token is for.
func (d agentConfig) Agents() string {
	if n := d.Invitation.Agents; n > 1 {
		return fmt.Sprintf("%d agents", n)
	}
	return "one agent"
}

// Patterns returns the targets as one list; "" for none.
func (d agentConfig) Patterns() string {
	var texts []string
	for _, p := range d.Allow {
		texts = append(texts, p.text)
	}
	return strings.Join(texts, ",")
}

// Unit returns the unit that the packages have, with the targets.
func (d agentConfig) Unit() (string, error) {
	unit := deploy.AgentUnit()
	if patterns := d.Patterns(); patterns != "" {
		word, err := quote.SystemdArgument(patterns)
		if err != nil {
			return "", cli.Mistake("--allow %v", err)
		}
		const state = " --state /var/lib/tunnel-agent"
		unit = strings.Replace(unit, state, state+" --allow "+word, 1)
	}
	return unit, nil
}

// ShellPatterns returns the targets as a word for a shell; "" for none.
func (d agentConfig) ShellPatterns() (string, error) {
	if len(d.Allow) == 0 {
		return "", nil
	}
	return quote.Shell(d.Patterns())
}

var formats = map[string]func(io.Writer, agentConfig) error{
	"command":  renderTemplate(commandText),
	"env":      renderTemplate(envText),
	"systemd":  renderTemplate(systemdText),
	"secret":   renderTemplate(secretText),
	"manifest": renderManifest,
}

func renderTemplate(text string) func(io.Writer, agentConfig) error {
	t := template.Must(template.New("").Funcs(template.FuncMap{"yaml": yamledit.Quote}).Parse(text))
	return func(w io.Writer, d agentConfig) error { return t.Execute(w, d) }
}

// The variables are in the environment: other users see the arguments of a process.
const commandText = `{{range .Lines}}{{.}} {{end}}causeway-agent --state ./agent-state{{with .ShellPatterns}} --allow {{.}}{{end}}
`

const envText = `{{range .Lines}}{{.}}
{{end}}`

// The invitation is in comments: systemd would show variables of the unit to
// every user of the machine. The agent reads it from its file, so that a new
// one in the same place enrols it again without a restart.
const systemdText = `# An agent of the cluster {{printf "%q" .Invitation.Cluster}}. This file holds a token, for {{.Agents}}, until
# {{.Invitation.Expires.Format "2006-01-02 15:04:05 MST"}}. As root, with the file saved as ./tunnel-agent.service:
#
#   mkdir -p -m 700 /etc/tunnel-agent
#   (umask 077; sed -n 's/^#= //p' tunnel-agent.service >/etc/tunnel-agent/invitation.env)
#   grep -v '^#' tunnel-agent.service >/etc/systemd/system/tunnel-agent.service
#   systemctl daemon-reload && systemctl enable --now tunnel-agent && rm tunnel-agent.service
#
{{range .Lines}}#= {{.}}
{{end}}
{{.Unit}}`

// secretText is the Secret that the agent's base needs.
const secretText = `apiVersion: v1
kind: Secret
metadata:
  name: tunnel-agent-invitation
  namespace: {{yaml .Namespace}}
stringData:
  invitation.env: |
{{- range .Lines}}
    {{.}}
{{- end}}
`
