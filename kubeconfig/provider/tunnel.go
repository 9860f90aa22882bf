package provider

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/internal/yamledit"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	"github.com/causewayproject/causeway/proxyconfig"
)

// LabelTunnel, with the value "true" on a Cluster, says that agents of the tunnel lead to
// it, and nothing else. The tunnel's server then writes the Secrets below beside the
// Cluster, and the condition [ConditionTunnel]. Unless the Cluster has an annotation
// proxy-url or route-secret, its route-secret is the one with [SuffixTunnelRoute]: the
// Cluster has no other route, and never a direct one, while that Secret is missing.
const LabelTunnel = Prefix + "tunnel"

// ConditionTunnel is the type of the Cluster's condition that says whether an agent is
// connected.
const ConditionTunnel = "TunnelConnected"

// AnnotationTunnelSSH, on a Cluster with LabelTunnel, names a Secret of the type
// kubernetes.io/ssh-auth in the Cluster's namespace. The agents on its machines accept
// the public key, see [KeySSHPublic].
const AnnotationTunnelSSH = Prefix + "tunnel-ssh-secret"

// KeySSHPublic is the key of the public key in the Secret that AnnotationTunnelSSH names,
// beside ssh-privatekey: a line of authorized_keys.
const KeySSHPublic = "ssh-publickey"

// The Secrets beside a Cluster with LabelTunnel have the Cluster's name and a suffix.
const (
	SuffixTunnelAgent = "-tunnel-agent" // has the keys below, for machines
	SuffixTunnelRoute = "-tunnel-route" // has KeyUsername, KeyPassword and, if it is known, KeyGateway; the label of its Cluster
)

// Keys of the Secret with SuffixTunnelAgent. The invitation is a secret, the others are not.
const (
	KeyAgentInvitation = "invitation.env"       // of KubeadmConfig's files, mode 0600
	KeyAgentUnit       = "tunnel-agent.service" // a unit of systemd that runs /usr/local/bin/causeway-agent
	KeyAgentPod        = "tunnel-agent.yaml"    // a static pod; missing if the server knows no image
)

const (
	agentInvitationFile = "/etc/tunnel-agent/invitation.env"
	agentUnitFile       = "/etc/systemd/system/tunnel-agent.service"
)

// AgentFiles returns what a KubeadmConfig of control plane machines needs for an agent of
// the tunnel that systemd runs, such as spec.kubeadmConfigSpec of a KubeadmControlPlane.
// cluster is the Cluster's name. The machine's image must have
// /usr/local/bin/causeway-agent. The agent starts before kubeadm runs, and goes to the API
// server of its own machine. Cluster API waits for the Secret, and the Secret for the
// Cluster's endpoint.
func AgentFiles(cluster string) *proxyconfig.KubeadmSpec {
	return &proxyconfig.KubeadmSpec{
		Files: []proxyconfig.File{
			agentFile(cluster, agentInvitationFile, KeyAgentInvitation),
			agentFile(cluster, agentUnitFile, KeyAgentUnit),
		},
		// A machine whose agent can't start is made all the same, and says so in the
		// output of the commands: Ignition's script has set -e.
		PreKubeadmCommands: []string{"systemctl daemon-reload", "systemctl enable --now tunnel-agent.service || true"},
	}
}

func agentFile(cluster, path, key string) proxyconfig.File {
	secret := proxyconfig.SecretKey{Name: cluster + SuffixTunnelAgent, Key: key}
	return proxyconfig.File{Path: path, Permissions: "0600", ContentFrom: proxyconfig.FileSource{Secret: secret}}
}

// routeAnnotations returns the Cluster's annotations, with the route-secret that LabelTunnel
// stands for, if it does: then outer settings that lead elsewhere don't count.
func (c Cluster) routeAnnotations() (annotations map[string]string, tunneled bool) {
	own := func(name string) string { return strings.TrimSpace(c.Annotations[name]) }
	if !c.Tunnel || own(AnnotationProxyURL) != "" || own(AnnotationRouteSecret) != "" {
		return c.Annotations, false
	}
	annotations = map[string]string{}
	maps.Copy(annotations, c.Annotations)
	annotations[AnnotationRouteSecret] = c.Name + SuffixTunnelRoute
	return annotations, true
}

const (
	// agentAPITarget is what kubeconfigs of the tunnel's own commands name.
	agentAPITarget = "kubernetes.default.svc:443"
	agentSSHTarget = "127.0.0.1:22"
	agentKeysFile  = "/root/.ssh/authorized_keys"
)

// AgentSecret is what a control plane machine gets by the Secret with [SuffixTunnelAgent].
type AgentSecret struct {
	Invitation string              // the lines of an environment file
	Image      string              // of the agent in a static pod; if "", there is none
	Endpoint   kubeconfig.Endpoint // the Cluster's
	Port       int64               // where the machine's own API server listens
	SSH        bool                // the agent takes SSH keys
}

// Data returns the data of the Secret. The error names what can't be written into a file.
func (s AgentSecret) Data() (map[string][]byte, error) {
	if err := field.CheckHost(s.Endpoint.Host); err != nil {
		return nil, fmt.Errorf("provider: the host of the endpoint %w", err)
	}
	if s.Port < 1 || s.Port > 65535 {
		return nil, fmt.Errorf("provider: the port of the API server is %d: want 1 to 65535", s.Port)
	}
	unit, err := s.unit()
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{KeyAgentInvitation: []byte(s.Invitation), KeyAgentUnit: []byte(unit)}
	if s.Image == "" {
		return data, nil
	}
	pod, err := s.pod()
	data[KeyAgentPod] = []byte(pod)
	return data, err
}

// arguments are the agent's. The kubeconfig names the Cluster's endpoint, and the agent
// goes to the machine's own API server in its place: the endpoint may be a load balancer
// that the machine does not reach, and is not there yet when the first machine starts.
func (s AgentSecret) arguments() []string {
	own := fmt.Sprintf("127.0.0.1:%d", s.Port)
	args := []string{
		"--invitation=" + agentInvitationFile,
		"--state=/var/lib/tunnel-agent",
		"--alias=" + agentAPITarget + "=" + own,
		"--alias=" + s.Endpoint.String() + "=" + own,
	}
	if s.SSH {
		args = append(args, "--allow="+agentSSHTarget, "--authorized-keys="+agentKeysFile)
	}
	return args
}

func (s AgentSecret) unit() (string, error) {
	home, command := "ProtectHome=read-only", ""
	if s.SSH {
		home, command = "ReadWritePaths=/root", "ExecStartPre=/bin/mkdir -p -m 700 /root/.ssh\n"
	}
	arguments := ""
	for _, a := range s.arguments() {
		word, err := quote.SystemdArgument(a)
		if err != nil {
			return "", fmt.Errorf("provider: an argument of the agent %w", err)
		}
		arguments += " " + word
	}
	return `[Unit]
Description=Tunnel agent
Wants=network-online.target
After=network-online.target

[Service]
` + command + `ExecStart=/usr/local/bin/causeway-agent` + arguments + `
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
`, nil
}

// pod is a manifest for the kubelet. It is root, as the files are, and can do no more than
// read them.
func (s AgentSecret) pod() (string, error) {
	args, mounts, volumes := "", "", ""
	image, err := yamledit.Quote(s.Image)
	if err = cmp.Or(quote.CheckImage(s.Image), err); err != nil {
		return "", fmt.Errorf("provider: the agent's image %w", err)
	}
	for _, a := range s.arguments() {
		word, err := yamledit.Quote(quote.Container(a))
		if err != nil {
			return "", fmt.Errorf("provider: an argument of the agent %w", err)
		}
		args += "    - " + word + "\n"
	}
	addVolume := func(name, path string, readOnly bool) {
		mounts += fmt.Sprintf("    - name: %s\n      mountPath: %s\n      readOnly: %t\n", name, path, readOnly)
		volumes += fmt.Sprintf("  - name: %s\n    hostPath:\n      path: %s\n      type: DirectoryOrCreate\n", name, path)
	}
	addVolume("invitation", "/etc/tunnel-agent", true)
	addVolume("state", "/var/lib/tunnel-agent", false)
	if s.SSH {
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
    image: ` + image + `
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
` + volumes, nil
}
