package main

import (
	"io"
	"strings"
	"text/template"

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
	"manifest": rendering(manifestText),
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

// The certificate is kept on a volume: the token is good for one agent, and a
// pod that starts anew is to be the same one.
const manifestText = `apiVersion: v1
kind: Namespace
metadata:
  name: {{.Namespace}}
---
apiVersion: v1
kind: Secret
metadata:
  name: tunnel-agent-invitation
  namespace: {{.Namespace}}
stringData:
  invitation.env: |
{{- range .Lines}}
    {{.}}
{{- end}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: tunnel-agent
  namespace: {{.Namespace}}
  labels: {app.kubernetes.io/name: tunnel-agent}
spec:
  serviceName: tunnel-agent
  replicas: 1
  selector:
    matchLabels: {app.kubernetes.io/name: tunnel-agent}
  template:
    metadata:
      labels: {app.kubernetes.io/name: tunnel-agent}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 45
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: tunnel-agent
          image: {{printf "%q" .Image}}
          args:
            - -invitation=/etc/tunnel-agent/invitation.env
            - -state=/var/lib/tunnel-agent/state
            - -status=:8080
          ports:
            - {name: status, containerPort: 8080}
          livenessProbe:
            httpGet: {path: /healthz, port: status}
          readinessProbe:
            httpGet: {path: /readyz, port: status}
          resources:
            requests: {cpu: 10m, memory: 32Mi}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: invitation, mountPath: /etc/tunnel-agent, readOnly: true}
            - {name: state, mountPath: /var/lib/tunnel-agent}
      volumes:
        - name: invitation
          secret: {secretName: tunnel-agent-invitation, defaultMode: 0440}
  volumeClaimTemplates:
    - metadata: {name: state}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: 16Mi}}
`
