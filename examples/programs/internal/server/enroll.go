package server

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/causewayproject/causeway/examples/deploy"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
)

// maxPayload is the size of a message of the tunnel, less room for the name.
const maxPayload = 1<<20 - 1<<10

func enrollCommand(ctx context.Context, args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server enroll", flag.ContinueOnError)
	flags := addStateFlags(set)
	var addresses cli.List
	set.Var(&addresses, "server", "`address` of the server: host:port, or a wss URL; several are allowed; default: what the server was told to -advertise")
	format := set.String("format", "command", "the `format` of what is printed: one of "+strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
	life := set.Duration("life", time.Hour, "how long the token is valid")
	var d agentConfig
	set.StringVar(&d.Image, "image", "causeway-agent:latest", "the `image` of the agent in a manifest")
	set.StringVar(&d.Namespace, "namespace", "tunnel-agent", "the `namespace` of the agent in a manifest")
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	render, ok := formats[*format]
	if len(positional) != 1 || !ok {
		return cli.UsageError{Text: "tunnel-server enroll: one CLUSTER, and a -format of " + strings.Join(slices.Sorted(maps.Keys(formats)), ", ")}
	}
	if *life <= 0 {
		return cli.UsageError{Text: "tunnel-server enroll: -life is not above zero"}
	}
	if err := checkServers("tunnel-server enroll: -server", addresses); err != nil {
		return err
	}
	st, server, err := flags.openServer(ctx)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		if addresses, err = advertisedServers(ctx, st); err != nil {
			return err
		}
	}
	if len(addresses) == 0 {
		return cli.UsageError{Text: "tunnel-server enroll: the server's address is unknown: set -server here, or -advertise of the server"}
	}
	if d.Invitation, err = server.Invite(ctx, positional[0], *life); err != nil {
		return err
	}
	d.Invitation.Servers = addresses
	return render(stdout, d)
}

// revokeCommand accepts an agent that has not enrolled, too: a Store may have
// forgotten it, or another PKI may issue its certificate.
func revokeCommand(ctx context.Context, args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server revoke", flag.ContinueOnError)
	flags := addStateFlags(set)
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	if len(positional) != 2 {
		return cli.UsageError{Text: "tunnel-server revoke: CLUSTER and AGENT are required; /status of the server lists them"}
	}
	_, server, err := flags.openServer(ctx)
	if err != nil {
		return err
	}
	id := tunnel.Identity{Cluster: positional[0], Agent: positional[1]}
	if err := server.Revoke(ctx, id); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "agent %q of cluster %q is revoked, whether or not it ever connected: /status of the server lists those that are connected\n", id.Agent, id.Cluster)
	return err
}

func payloadCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	set := flag.NewFlagSet("tunnel-server payload", flag.ContinueOnError)
	flags := addStateFlags(set)
	positional, err := cli.Parse(set, args, stdout)
	if err != nil {
		return err
	}
	if len(positional) != 2 {
		return cli.UsageError{Text: "tunnel-server payload: CLUSTER and NAME are required, and the data on standard input"}
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxPayload+1))
	if err != nil {
		return err
	}
	if len(data) > maxPayload {
		return fmt.Errorf("tunnel-server payload: more than %d bytes", maxPayload)
	}
	st, err := flags.open(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return st.setPayload(ctx, positional[0], tunnel.Payload{Name: positional[1], Data: data})
}

// agentConfig is the data of the formats.
type agentConfig struct {
	Invitation       tunnel.Invitation
	Image, Namespace string
}

// Lines returns the invitation's variables. None of their characters is special to a
// shell, systemd or YAML.
func (d agentConfig) Lines() []string {
	return strings.Split(strings.TrimSpace(d.Invitation.Reveal()), "\n")
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
const commandText = `{{range .Lines}}{{.}} {{end}}causeway-agent -state ./tunnel-agent
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
ExecStart=/usr/local/bin/causeway-agent -invitation /etc/tunnel-agent/invitation.env -state /var/lib/tunnel-agent
StateDirectory=tunnel-agent
StateDirectoryMode=0700
Restart=always
RestartSec=5
TimeoutStopSec=45
# To write -authorized-keys, add its folder to ReadWritePaths.
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

// renderManifest writes the base of the agent, with its namespace and image, and the
// Secret.
func renderManifest(w io.Writer, d agentConfig) error {
	base := strings.NewReplacer(
		"kind: Namespace\nmetadata:\n  name: tunnel-agent\n", "kind: Namespace\nmetadata:\n  name: "+d.Namespace+"\n",
		"  namespace: tunnel-agent\n", "  namespace: "+d.Namespace+"\n",
		"image: causeway-agent:dev\n", fmt.Sprintf("image: %q\n", d.Image),
	).Replace(deploy.Agent())
	if _, err := io.WriteString(w, base+"---\n"); err != nil {
		return err
	}
	return renderTemplate(secretText)(w, d)
}
