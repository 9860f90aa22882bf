package proxyconfig

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/noproxy"
)

// KubeadmKey is the key of the Secret <cluster>-systemd-proxy with the
// environment of kubeadm: a script for a POSIX shell.
const KubeadmKey = "kubeadmProxy"

// StaticPods is how kube-apiserver, kube-controller-manager, kube-scheduler and
// etcd get the variables. The kubelet runs them from manifests that kubeadm
// writes, so nothing can inject into them later, and they can refer to no Secret.
// Whichever way it is, everybody with the right to read pods in kube-system reads
// their variables there. [CredentialsOnMachines] leaves the user info out of the
// Secret's part of it.
//
// A kube-apiserver with a proxy sends through it what the list does not name: calls
// to the kubelets at the nodes' addresses, for logs and exec, and to webhooks and
// aggregated API servers. kube-controller-manager and kube-scheduler call the API
// server at the address of their node, members of etcd each other at theirs. So
// the list needs the networks of nodes, services and pods, "svc", and the address
// of the control plane. Nothing here guesses them: set NodeCIDRs and the other
// fields of [noproxy.Cluster], and ask [Merged.LintStaticPods].
type StaticPods int

const (
	// StaticPodsNone gives them no variables.
	StaticPodsNone StaticPods = iota

	// StaticPodsEnvironment gives kubeadm the variables, from a file that only
	// root reads: kubeadm, of any version, copies them from its environment into
	// the manifests, but for that of etcd. It also copies them into the DaemonSet
	// kube-proxy, and it reaches the API server by them when it joins: the list
	// needs the address of the control plane.
	StaticPodsEnvironment

	// StaticPodsPatches has kubeadm (v1beta3 and v1beta4) patch the manifests,
	// with files that only root reads. It sets initConfiguration.patches and
	// joinConfiguration.patches to /etc/kubernetes/patches.
	StaticPodsPatches

	// StaticPodsExtraEnvs has kubeadm (v1beta4, so Kubernetes 1.31 or newer) set
	// the variables. Cluster API leaves extraEnvs out without an error for an older
	// Kubernetes. They are plain text in the KubeadmControlPlane, so the URLs have no
	// user info.
	StaticPodsExtraEnvs

	// StaticPodsExtraEnvsWithCredentials is StaticPodsExtraEnvs with the user
	// info: everybody with the right to read the KubeadmControlPlane reads it, and
	// every machine of the cluster, as kubeadm keeps it in the ConfigMap
	// kubeadm-config of kube-system.
	StaticPodsExtraEnvsWithCredentials
)

// KubeadmCluster is a part of kubeadm's ClusterConfiguration. Etcd is the one that
// kubeadm runs: leave it out for an external one.
type KubeadmCluster struct {
	APIServer         ExtraEnvs `json:"apiServer"`
	ControllerManager ExtraEnvs `json:"controllerManager"`
	Scheduler         ExtraEnvs `json:"scheduler"`
	Etcd              LocalEtcd `json:"etcd"`
}

// LocalEtcd is the etcd of [KubeadmCluster].
type LocalEtcd struct {
	Local ExtraEnvs `json:"local"`
}

// ExtraEnvs are the variables of a static pod.
type ExtraEnvs struct {
	ExtraEnvs []corev1.EnvVar `json:"extraEnvs"`
}

// KubeadmNode is a part of kubeadm's InitConfiguration and JoinConfiguration.
type KubeadmNode struct {
	Patches KubeadmPatches `json:"patches"`
}

// KubeadmPatches says where kubeadm finds patches.
type KubeadmPatches struct {
	Directory string `json:"directory"` // absolute, on the machine
}

// staticPods are the names of the manifests, of the containers in them, and of
// kubeadm's targets of patches.
var staticPods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}

// patchKey is the key of the Secret with the patch of a static pod.
func patchKey(pod string) string { return pod + "-patch" }

func (k Kubeadm) addStaticPods(s *KubeadmSpec) error {
	switch k.StaticPods {
	case StaticPodsNone:
	case StaticPodsEnvironment:
		s.addFile(kubeadmScript, k.Secret, KubeadmKey)
		s.PreKubeadmCommands = append(s.PreKubeadmCommands, ". "+kubeadmScript)
	case StaticPodsPatches:
		for _, pod := range staticPods {
			// kubeadm takes what is between the target and the + for an order.
			s.addFile(patchFolder+"/"+pod+"-proxy+strategic.yaml", k.Secret, patchKey(pod))
		}
		s.InitConfiguration = &KubeadmNode{Patches: KubeadmPatches{Directory: patchFolder}}
		s.JoinConfiguration = &KubeadmNode{Patches: KubeadmPatches{Directory: patchFolder}}
	case StaticPodsExtraEnvs, StaticPodsExtraEnvsWithCredentials:
		if err := k.Config.Validate(); err != nil {
			return prefixFields("Config", err)
		}
		c := k.Config
		if k.StaticPods == StaticPodsExtraEnvs {
			c = c.WithoutCredentials()
		}
		if c.IsZero() {
			return nil
		}
		envs := ExtraEnvs{c.EnvVars()}
		s.ClusterConfiguration = &KubeadmCluster{APIServer: envs, ControllerManager: envs, Scheduler: envs, Etcd: LocalEtcd{envs}}
	default:
		return fieldErrorf("StaticPods", "unknown")
	}
	return nil
}

// staticPodKeys returns the keys of the Secret that StaticPodsEnvironment and
// StaticPodsPatches refer to.
func (c Config) staticPodKeys() (map[string][]byte, error) {
	exports, err := c.ShellExports()
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{KubeadmKey: []byte("# kubeadm copies these variables into static pods.\n" + exports)}
	for _, pod := range staticPods {
		container := map[string]any{"name": pod}
		if !c.IsZero() {
			container["env"] = c.EnvVars()
		}
		patch, err := yaml.Marshal(map[string]any{"spec": map[string]any{"containers": []any{container}}})
		if err != nil {
			return nil, fmt.Errorf("proxyconfig: patch of %s: %w", pod, err)
		}
		data[patchKey(pod)] = patch
	}
	return data, nil
}

// LintStaticPods returns what static pods that get the configuration in this way
// would reach through the proxy, or not at all, since nothing says where it is.
// No Finding holds credentials. It looks at the fields of [noproxy.Cluster]: a
// network that is only an item of a list is not known to be the nodes'.
func (m *Merged) LintStaticPods(way StaticPods) []noproxy.Finding {
	if way == StaticPodsNone {
		return nil
	}
	var findings []noproxy.Finding
	add := func(does, write string) {
		findings = append(findings, noproxy.Finding{Index: -1, Consumer: noproxy.Go, Does: "static pods: " + does, Write: write})
	}
	for _, f := range []struct{ field, does, write string }{
		{"NodeCIDRs", "the nodes' networks are not known: kube-apiserver sends calls to kubelets, kube-controller-manager and kube-scheduler those to the API server, and etcd those to its members to the proxy, and the cluster may not start",
			"the networks of the nodes into NodeCIDRs (--nodes; --node-cidr of the propagator)"},
		{"ServiceCIDRs", "the networks of services are not known: kube-apiserver sends calls to aggregated API servers to the proxy",
			"the networks of services into ServiceCIDRs (--services)"},
		{"PodCIDRs", "the networks of pods are not known: kube-apiserver sends calls to pods to the proxy",
			"the networks of pods into PodCIDRs (--pods)"},
		{"ControlPlaneHosts", "the address of the control plane is not known: kubeadm and static pods send calls to the API server to the proxy",
			"the host of controlPlaneEndpoint into ControlPlaneHosts (--control-plane)"},
	} {
		isKnown := func(e noproxy.Entry) bool { return e.Skipped == "" && e.From == "Cluster."+f.field }
		if !slices.ContainsFunc(m.List, isKnown) {
			add(f.does, f.write)
		}
	}
	if way == StaticPodsExtraEnvs && m.Config.WithoutCredentials() != m.Config {
		add("extraEnvs have the proxy without its user name and password, and it may refuse them", "StaticPodsPatches (--static-pods patches), which reads them from the Secret")
	}
	return findings
}
