package controllers

import (
	"fmt"
	"strings"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
)

const (
	// agentAPITarget is what kubeconfigs of the tunnel's own commands name.
	agentAPITarget = "kubernetes.default.svc:443"
	agentSSHTarget = "127.0.0.1:22"
	agentKeysFile  = "/root/.ssh/authorized_keys"
)

// agentFiles is what a control plane machine gets.
type agentFiles struct {
	invitation  tunnel.Invitation
	environment []string
	image       string // ""; no static pod
	endpoint    kubeconfig.Endpoint
	port        int64 // where the machine's own API server listens
	ssh         bool
}

// render returns the data of the Secret.
func (f agentFiles) render() map[string][]byte {
	lines := f.invitation.Reveal()
	for _, line := range f.environment {
		lines += line + "\n"
	}
	data := map[string][]byte{provider.KeyAgentInvitation: []byte(lines), provider.KeyAgentUnit: []byte(f.unit())}
	if f.image != "" {
		data[provider.KeyAgentPod] = []byte(f.pod())
	}
	return data
}

// arguments are the agent's. The kubeconfig names the Cluster's endpoint, and the agent
// goes to the machine's own API server in its place: the endpoint may be a load balancer
// that the machine does not reach, and is not there yet when the first machine starts.
func (f agentFiles) arguments() []string {
	own := fmt.Sprintf("127.0.0.1:%d", f.port)
	args := []string{
		"--invitation=/etc/tunnel-agent/invitation.env",
		"--state=/var/lib/tunnel-agent",
		"--alias=" + agentAPITarget + "=" + own,
		"--alias=" + f.endpoint.String() + "=" + own,
	}
	if f.ssh {
		args = append(args, "--allow="+agentSSHTarget, "--authorized-keys="+agentKeysFile)
	}
	return args
}

// unit is read by systemd, which takes % for an order.
func (f agentFiles) unit() string {
	home, command := "ProtectHome=read-only", ""
	if f.ssh {
		home, command = "ReadWritePaths=/root", "ExecStartPre=/bin/mkdir -p -m 700 /root/.ssh\n"
	}
	arguments := strings.ReplaceAll(strings.Join(f.arguments(), " "), "%", "%%")
	return `[Unit]
Description=Tunnel agent
Wants=network-online.target
After=network-online.target

[Service]
` + command + `ExecStart=/usr/local/bin/causeway-agent ` + arguments + `
StateDirectory=tunnel-agent
StateDirectoryMode=0700
Restart=always
RestartSec=5
TimeoutStopSec=45
CapabilityBoundingSet=
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectSystem=strict
` + home + `
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX

[Install]
WantedBy=multi-user.target
`
}

// pod is a manifest for the kubelet. It is root, as the files are, and can do no more than
// read them.
func (f agentFiles) pod() string {
	args, mounts, volumes := "", "", ""
	for _, a := range f.arguments() {
		args += fmt.Sprintf("    - %q\n", a)
	}
	addVolume := func(name, path string, readOnly bool) {
		mounts += fmt.Sprintf("    - name: %s\n      mountPath: %s\n      readOnly: %t\n", name, path, readOnly)
		volumes += fmt.Sprintf("  - name: %s\n    hostPath:\n      path: %s\n      type: DirectoryOrCreate\n", name, path)
	}
	addVolume("invitation", "/etc/tunnel-agent", true)
	addVolume("state", "/var/lib/tunnel-agent", false)
	if f.ssh {
		addVolume("keys", "/root/.ssh", false)
	}
	return `apiVersion: v1
kind: Pod
metadata:
  name: tunnel-agent
  namespace: kube-system
  labels:
    app.kubernetes.io/name: tunnel-agent
spec:
  hostNetwork: true
  dnsPolicy: Default
  priorityClassName: system-node-critical
  enableServiceLinks: false
  terminationGracePeriodSeconds: 45
  securityContext:
    runAsUser: 0
    runAsGroup: 0
    seccompProfile:
      type: RuntimeDefault
  containers:
  - name: tunnel-agent
    image: ` + fmt.Sprintf("%q", f.image) + `
    args:
` + args + `    livenessProbe:
      httpGet:
        host: 127.0.0.1
        path: /healthz
        port: 8081
    resources:
      requests:
        cpu: 10m
        memory: 32Mi
      limits:
        memory: 256Mi
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
` + mounts + `  volumes:
` + volumes
}
