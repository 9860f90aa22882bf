package proxyconfig

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Where the files are on a machine.
const (
	kubeadmScript = "/etc/kubernetes/kubeadm-proxy.sh"
	patchFolder   = "/etc/kubernetes/patches"
)

// Kubeadm says what the machines of a cluster get from the Secret
// <cluster>-systemd-proxy of [ClusterObjects]. [Kubeadm.Build] renders it for
// Cluster API's KubeadmConfig.
type Kubeadm struct {
	// Secret is the name of the Secret, see [ClusterValues.SystemdSecret]. Required.
	Secret string

	// Units are the services that get the drop-in: "containerd", "crio", "docker",
	// "kubelet", or any "name.service". Units of other types have no environment. If
	// empty, it is containerd, as Giant Swarm's RFC has it.
	Units []string

	// StaticPods is how the static pods of a control plane get the variables. The
	// zero value is StaticPodsNone: they get none. Machines that only join as
	// workers have no static pods: leave it at that for them.
	StaticPods StaticPods

	// Config is what the extraEnvs hold. The other ways read the Secret only.
	Config Config
}

// KubeadmSpec is a part of the spec of a KubeadmConfig (bootstrap v1beta1 and
// v1beta2), and marshals to it in JSON and YAML. In a KubeadmControlPlane it
// belongs to spec.kubeadmConfigSpec, in a KubeadmConfigTemplate to
// spec.template.spec. Lists that are there already are kept: append to them.
//
// It holds no password, unless it is made with StaticPodsExtraEnvsWithCredentials.
type KubeadmSpec struct {
	ClusterConfiguration *KubeadmCluster `json:"clusterConfiguration,omitempty"`
	InitConfiguration    *KubeadmNode    `json:"initConfiguration,omitempty"`
	JoinConfiguration    *KubeadmNode    `json:"joinConfiguration,omitempty"`

	// Files are written when a machine is made. Their content stays in the Secret:
	// Cluster API waits until that exists. An existing machine keeps what it got.
	Files []File `json:"files"`

	// PreKubeadmCommands have systemd read the drop-ins, and restart those of the
	// units that run. cloud-init writes files after systemd has loaded its units:
	// without the commands it never reads them. A unit that does not exist, or is
	// not running, changes nothing; one that cannot be restarted is reported in the
	// output of the commands, and kubeadm runs. The commands are POSIX shell, and
	// run in the shell that runs kubeadm, in cloud-init and in Ignition.
	PreKubeadmCommands []string `json:"preKubeadmCommands"`
}

// File is an entry of files: in a KubeadmConfig.
type File struct {
	Path        string     `json:"path"`        // absolute, on the machine
	Permissions string     `json:"permissions"` // octal
	ContentFrom FileSource `json:"contentFrom"`
}

// FileSource is where the content of a [File] is.
type FileSource struct {
	Secret SecretKey `json:"secret"`
}

// SecretKey is a key of a Secret in the namespace of the object that refers to it.
type SecretKey struct {
	Name string `json:"name"` // the Secret's
	Key  string `json:"key"`  // in its data
}

// Build returns what the KubeadmConfig needs. The files are only root's, mode
// 0600. An error is a [*FieldError], or wraps those of [Config.Validate].
func (k Kubeadm) Build() (*KubeadmSpec, error) {
	if k.Secret == "" {
		return nil, fieldErrorf("Secret", "required")
	}
	units, err := k.serviceNames()
	if err != nil {
		return nil, err
	}
	s := &KubeadmSpec{PreKubeadmCommands: []string{"systemctl daemon-reload"}}
	for _, unit := range units {
		s.addFile("/etc/systemd/system/"+unit+".d/http-proxy.conf", k.Secret, ContainerdKey)
		// Ignition's script has set -e. try-restart does nothing for what is not
		// running, but takes a unit that does not exist for an error.
		s.PreKubeadmCommands = append(s.PreKubeadmCommands, "systemctl try-restart "+unit+" || true")
	}
	if err := k.addStaticPods(s); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *KubeadmSpec) addFile(path, secret, key string) {
	s.Files = append(s.Files, File{Path: path, Permissions: "0600", ContentFrom: FileSource{SecretKey{secret, key}}})
}

// otherUnits are the suffixes of the units that are no services (systemd.unit(5)).
var otherUnits = []string{".automount", ".device", ".mount", ".path", ".scope", ".slice", ".socket", ".swap", ".target", ".timer"}

// serviceNames returns the units, each once and with its suffix.
func (k Kubeadm) serviceNames() ([]string, error) {
	units := k.Units
	if len(units) == 0 {
		units = []string{"containerd"}
	}
	var names []string
	for i, unit := range units {
		other := slices.Contains(otherUnits, path.Ext(unit))
		unit = strings.TrimSuffix(unit, ".service")
		if other || unit == "" || strings.HasPrefix(unit, "-") || strings.ContainsFunc(unit, notInUnit) {
			return nil, fieldErrorf(fmt.Sprintf("Units[%d]", i), "not the name of a service: want name or name.service")
		}
		if name := unit + ".service"; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// notInUnit is systemd's set (systemd.unit(5)), without the backslash: the names
// go into a path and a command on a machine.
func notInUnit(r rune) bool { return notInName(r) && r != ':' && r != '@' }
