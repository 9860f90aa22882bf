package provider

import (
	"maps"
	"strings"

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
