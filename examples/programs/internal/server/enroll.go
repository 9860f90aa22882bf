package server

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/tunnel"
)

// maxPayload is the size of a message of the tunnel, less room for the name.
const maxPayload = 1<<20 - 1<<10

func enrollCommand() *cobra.Command {
	e := new(enrollment)
	cmd := &cobra.Command{
		Use:   "enroll CLUSTER",
		Short: "print what starts an agent of CLUSTER: an invitation",
		Long: `Prints what starts an agent of CLUSTER, such as default/prod. It holds a token: the first
program that uses it becomes the agent.

With --proxy, the agent connects through that proxy, whatever its environment says, in each
format; the password is where the token is. Other users see the arguments of a process: put
a URL with a password into the variable CAUSEWAY_PROXY. --no-proxy has the servers that the
agent reaches directly; names of the cluster need no entry, and neither targets nor the
cluster's API server are ever behind the proxy.

The manifest needs no volume: the agent keeps its certificate in a Secret. Its NetworkPolicy
allows DNS, the ports of the servers and of the proxy, 443 and 6443 of the API server, and
those of --allow. A control plane without a network plugin takes an agent with

  --host-network --toleration node-role.kubernetes.io/control-plane

It then uses the node's network and DNS, in a namespace whose pod security is privileged;
its status is on the node's loopback, port 8081; and it tolerates nodes that are not ready.
A NetworkPolicy would not apply to it: there is none. If the plugin replaces kube-proxy, add
--api-server, since the API server's Service is not there either.`,
		Example: `  causeway enroll default/prod                    # a command line
  causeway enroll default/prod --format env >invitation
  causeway enroll default/prod --format systemd   # or secret, manifest
  causeway enroll default/prod --secrets tunnel-server/tunnel --kubeconfig admin.conf
  CAUSEWAY_PROXY=http://user:p%40ss@proxy:3128 causeway enroll default/prod --format manifest`,
		Args: command.Args,
		RunE: func(cmd *cobra.Command, args []string) error { return e.run(cmd.Context(), args[0], cmd.OutOrStdout()) },
	}
	set := cmd.Flags()
	e.state = addStateFlags(set)
	set.Var(&e.servers, "server", "`address` of the server: host:port, or a wss URL; several are allowed; default: what the server was told to --advertise")
	command.Choice(cmd, &e.format, "format", "command", "what to print", slices.Sorted(maps.Keys(formats))...)
	set.DurationVar(&e.life, "life", time.Hour, "how long the token is valid")
	set.StringVar(&e.agent.Image, "image", "causeway-agent:latest", "the `image` of the agent in a manifest")
	set.StringVar(&e.agent.Namespace, "namespace", "tunnel-agent", "the `namespace` of the agent in a manifest, which makes it")
	set.StringVar(&e.proxy, "proxy", "", "`URL` of the proxy that leads the agent out, or direct; default: its environment's")
	set.Var(&e.noProxy, "no-proxy", "`list` of hosts, as in NO_PROXY, that --proxy is not for")
	set.Var(&e.allow, "allow", "`pattern` host:port of targets, for the agent's --allow; several are allowed; not in env and secret")
	e.pod.addFlags(set)
	return cmd
}

// enrollment is the flags of enroll.
type enrollment struct {
	state   *stateFlags
	servers cli.List
	format  string
	life    time.Duration
	proxy   string
	noProxy cli.List
	allow   cli.List
	pod     podFlags
	agent   agentConfig
}

func (e *enrollment) run(ctx context.Context, cluster string, stdout io.Writer) error {
	if e.life <= 0 {
		return cli.Mistake("--life must be more than zero, such as 1h")
	}
	if err := checkServers("--server", e.servers); err != nil {
		return err
	}
	if err := e.checkAgent(); err != nil {
		return err
	}
	st, server, err := e.state.openServer(ctx)
	if err != nil {
		return err
	}
	if len(e.servers) == 0 {
		if e.servers, err = advertisedServers(ctx, st); err != nil {
			return err
		}
	}
	if len(e.servers) == 0 {
		return cli.Mistake("the server's address is unknown: set --server here, or --advertise of the server")
	}
	if e.agent.Invitation, err = server.Invite(ctx, cluster, e.life); err != nil {
		return err
	}
	if err := noteCluster(ctx, st, cluster); err != nil {
		return fmt.Errorf("%s: %w", e.state, err)
	}
	e.agent.Invitation.Servers = e.servers
	return formats[e.format](stdout, e.agent)
}

// checkAgent reads the flags that are for the agent.
func (e *enrollment) checkAgent() (err error) {
	switch {
	case len(e.allow) > 0 && (e.format == "env" || e.format == "secret"):
		return cli.Mistake("--allow is an argument of the agent: with --format %s, give it there", e.format)
	case e.format != "manifest" && e.pod.isSet():
		return cli.Mistake("--host-network, --toleration and --api-server are for --format manifest")
	}
	if e.format == "manifest" || e.format == "secret" {
		if len(validation.IsDNS1123Label(e.agent.Namespace)) > 0 {
			return cli.Mistake("--namespace %q is not the name of a namespace", e.agent.Namespace)
		}
		if strings.HasPrefix(e.agent.Namespace, "kube-") || e.agent.Namespace == "default" {
			return cli.Mistake("--namespace %s is others', and the manifest sets the pod security of its namespace: want one for the agent alone", e.agent.Namespace)
		}
	}
	if e.agent.Proxy, err = readAgentProxy(e.proxy, e.noProxy); err != nil {
		return err
	}
	if e.agent.Allow, err = readTargets(e.allow); err != nil {
		return err
	}
	e.agent.Pod, err = e.pod.read()
	return err
}

// An agent that has not enrolled can be revoked, too: a Store may have forgotten it.
func revokeCommand() *cobra.Command {
	var flags *stateFlags
	cmd := &cobra.Command{
		Use:     "revoke CLUSTER AGENT",
		Short:   "end an agent of CLUSTER, for good",
		Long:    "Ends AGENT of CLUSTER, for good. The server's log, its page and /status have the names.",
		Example: "  causeway revoke default/prod k3w7hq2nxy5zr4ta",
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			st, server, err := flags.openServer(cmd.Context())
			if err != nil {
				return err
			}
			warnUnknown(cmd.Context(), st, args[0], cmd.ErrOrStderr())
			id := tunnel.Identity{Cluster: args[0], Agent: args[1]}
			if err := server.Revoke(cmd.Context(), id); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "agent %q of cluster %q is revoked, whether or not it ever connected: /status of the server lists those that are connected\n", id.Agent, id.Cluster)
			return err
		},
	}
	flags = addStateFlags(cmd.Flags())
	return cmd
}

func payloadCommand() *cobra.Command {
	var flags *stateFlags
	cmd := &cobra.Command{
		Use:                   "payload CLUSTER NAME <FILE",
		DisableFlagsInUseLine: true, // they would stand behind <FILE
		Short:                 "hand the agents of CLUSTER data, such as SSH keys",
		Long: `Sends the data on standard input, as NAME, to the connected agents of CLUSTER, and to each
agent that connects later.`,
		Example: "  causeway payload default/prod authorized_keys <id_ed25519.pub",
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxPayload+1))
			if err != nil {
				return err
			}
			if len(data) > maxPayload {
				return fmt.Errorf("standard input has more than %d bytes", maxPayload)
			}
			st, err := flags.open(cmd.Context())
			if err != nil {
				return err
			}
			warnUnknown(cmd.Context(), st, args[0], cmd.ErrOrStderr())
			if err := st.setPayload(cmd.Context(), args[0], tunnel.Payload{Name: args[1], Data: data}); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the agents of cluster %q get %q, %d bytes; the server's log says who took it\n", args[0], args[1], len(data))
			return err
		},
	}
	flags = addStateFlags(cmd.Flags())
	return cmd
}

// agentConfig is the data of the formats.
type agentConfig struct {
	Invitation       tunnel.Invitation
	Proxy            agentProxy
	Allow            []targetPattern
	Image, Namespace string
	Pod              podConfig
}

// Lines returns the variables of the invitation and of the proxy. None of their
// characters is special to a shell that assigns them, to systemd or to YAML.
func (d agentConfig) Lines() []string {
	return append(strings.Split(strings.TrimSpace(d.Invitation.Reveal()), "\n"), d.Proxy.lines()...)
}

// Patterns returns the targets as one list; "" for none.
func (d agentConfig) Patterns() string {
	var texts []string
	for _, p := range d.Allow {
		texts = append(texts, p.text)
	}
	return strings.Join(texts, ",")
}

var formats = map[string]func(io.Writer, agentConfig) error{
	"command":  renderTemplate(commandText),
	"env":      renderTemplate(envText),
	"systemd":  renderTemplate(systemdText),
	"secret":   renderTemplate(secretText),
	"manifest": renderManifest,
}

func renderTemplate(text string) func(io.Writer, agentConfig) error {
	t := template.Must(template.New("").Parse(text))
	return func(w io.Writer, d agentConfig) error { return t.Execute(w, d) }
}

// The variables are in the environment: other users see the arguments of a process.
const commandText = `{{range .Lines}}{{.}} {{end}}causeway-agent --state ./agent-state{{with .Patterns}} --allow '{{.}}'{{end}}
`

const envText = `{{range .Lines}}{{.}}
{{end}}`

// The invitation is in comments: systemd would show variables of the unit to
// every user of the machine. The agent reads it from its file, so that a new
// one in the same place enrols it again without a restart.
const systemdText = `# An agent of the cluster {{printf "%q" .Invitation.Cluster}}. This file holds a token, for one agent, until
# {{.Invitation.Expires.Format "2006-01-02 15:04:05 MST"}}. As root, with the file saved as ./tunnel-agent.service:
#
#   mkdir -p -m 700 /etc/tunnel-agent
#   (umask 077; sed -n 's/^#= //p' tunnel-agent.service >/etc/tunnel-agent/invitation.env)
#   grep -v '^#' tunnel-agent.service >/etc/systemd/system/tunnel-agent.service
#   systemctl daemon-reload && systemctl enable --now tunnel-agent && rm tunnel-agent.service
#
{{range .Lines}}#= {{.}}
{{end}}
[Unit]
Description=Tunnel agent
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/local/bin/causeway-agent --invitation /etc/tunnel-agent/invitation.env --state /var/lib/tunnel-agent{{with .Patterns}} --allow {{.}}{{end}}
StateDirectory=tunnel-agent
StateDirectoryMode=0700
Restart=always
RestartSec=5
TimeoutStopSec=45
# To write --authorized-keys, add its folder to ReadWritePaths.
CapabilityBoundingSet=
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX

[Install]
WantedBy=multi-user.target
`

// secretText is the Secret that the agent's base needs.
const secretText = `apiVersion: v1
kind: Secret
metadata:
  name: tunnel-agent-invitation
  namespace: {{.Namespace}}
stringData:
  invitation.env: |
{{- range .Lines}}
    {{.}}
{{- end}}
`
