package main

import (
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/causewayproject/causeway/examples/deploy"
	"github.com/causewayproject/causeway/tunnel"
)

// delivery is what is rendered for the one who starts an agent.
type delivery struct {
	Invitation       tunnel.Invitation
	Image, Namespace string
}

// Lines returns the invitation's variables, in characters that neither a shell
// nor systemd nor YAML gives a meaning to.
func (d delivery) Lines() []string {
	return strings.Split(strings.TrimSpace(d.Invitation.Reveal()), "\n")
}

var formats = map[string]func(io.Writer, delivery) error{
	"command":  rendering(commandText),
	"env":      rendering(envText),
	"systemd":  rendering(systemdText),
	"secret":   rendering(secretText),
	"manifest": manifest,
}

func rendering(text string) func(io.Writer, delivery) error {
	t := template.Must(template.New("").Parse(text))
	return func(w io.Writer, d delivery) error { return t.Execute(w, d) }
}

// The variables go by the environment, which other users don't see, unlike
// arguments.
const commandText = `{{range .Lines}}{{.}} {{end}}tunnel-agent -state ./tunnel-agent
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
ExecStart=/usr/local/bin/tunnel-agent -invitation /etc/tunnel-agent/invitation.env -state /var/lib/tunnel-agent
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

// secretText is what the base of the agent lacks.
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

// manifest is the base of the agent, in the namespace and with the image that
// it is to have, and the Secret.
func manifest(w io.Writer, d delivery) error {
	base := strings.NewReplacer(
		"kind: Namespace\nmetadata:\n  name: tunnel-agent\n", "kind: Namespace\nmetadata:\n  name: "+d.Namespace+"\n",
		"  namespace: tunnel-agent\n", "  namespace: "+d.Namespace+"\n",
		"image: tunnel-agent:dev\n", fmt.Sprintf("image: %q\n", d.Image),
	).Replace(deploy.Agent())
	if _, err := io.WriteString(w, base+"---\n"); err != nil {
		return err
	}
	return rendering(secretText)(w, d)
}
