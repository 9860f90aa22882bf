package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kubeadmtypes "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types/upstream"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/proxyconfig"
)

// proxyAddress is where no test connects to.
const proxyAddress = "proxy.test:3128"

// Kubernetes versions of kubeadm's two configuration versions, v1beta4 and v1beta3.
const oldKubeadm = "1.30.0"

var newKubeadm = strings.TrimPrefix(bed.KubeVersion(), "v")

var controlPlanePods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}

// machineSecret is the Secret that Cluster API reads for a configuration.
func machineSecret(t *testing.T, c proxyconfig.Config) map[string][]byte {
	t.Helper()
	o, err := proxyconfig.ClusterValues{Name: "prod", Namespace: "org", Config: c}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return o.SystemdProxy.Data
}

// machineForms are the forms that a Secret can hold. The others are refused by the
// name of their field, as charts would misread them.
func machineForms(t *testing.T) []passwordForm {
	t.Helper()
	forms := slices.DeleteFunc(append(passwordForms(), listForms()...), func(f passwordForm) bool {
		_, err := proxyconfig.ClusterValues{Name: "prod", Namespace: "org", Config: f.config(proxyAddress)}.Build()
		var field *proxyconfig.FieldError
		if err != nil && !errors.As(err, &field) {
			t.Fatalf("%s: got %v, want the name of the field", f.name, err)
		}
		return err != nil
	})
	if want := len(passwordForms()); len(forms) < want || forms[want-1] != passwordForms()[want-1] {
		t.Fatal("a password is refused: want only lists to be")
	}
	return forms
}

// clusterAPISpec is the spec as Cluster API has it, with what it sets itself.
func clusterAPISpec(t *testing.T, spec *proxyconfig.KubeadmSpec) *bootstrapv1.KubeadmConfigSpec {
	t.Helper()
	text, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	got := &bootstrapv1.KubeadmConfigSpec{}
	if err := yaml.UnmarshalStrict(text, got); err != nil {
		t.Fatal(err)
	}
	got.InitConfiguration.LocalAPIEndpoint.AdvertiseAddress = "192.0.2.10"
	got.InitConfiguration.NodeRegistration.Name = "prod-1"
	got.InitConfiguration.NodeRegistration.CRISocket = "unix:///run/containerd/containerd.sock"
	return got
}

// resolveFiles puts the Secret's content into the files, as Cluster API's controller
// does.
func resolveFiles(t *testing.T, spec *bootstrapv1.KubeadmConfigSpec, secret map[string][]byte) []bootstrapv1.File {
	t.Helper()
	var files []bootstrapv1.File
	for _, f := range spec.Files {
		content, ok := secret[f.ContentFrom.Secret.Key]
		if !ok || f.ContentFrom.Secret.Name != dropInSecret {
			t.Fatalf("%s is from %+v, which the Secret does not have", f.Path, f.ContentFrom.Secret)
		}
		f.Content, f.ContentFrom = string(content), bootstrapv1.FileSource{}
		files = append(files, f)
	}
	return files
}

// kubeadmConfigs are the two documents that Cluster API gives to kubeadm init.
func kubeadmConfigs(t *testing.T, spec *bootstrapv1.KubeadmConfigSpec, version string) (cluster, init string) {
	t.Helper()
	v := semver.MustParse(version)
	data := &upstream.AdditionalData{KubernetesVersion: ptr.To("v" + newKubeadm), ClusterName: ptr.To("prod"), ServiceSubnet: ptr.To("10.96.0.0/12")}
	cluster, err := kubeadmtypes.MarshalClusterConfigurationForVersion(&spec.ClusterConfiguration, v, data)
	if err != nil {
		t.Fatal(err)
	}
	init, err = kubeadmtypes.MarshalInitConfigurationForVersion(&spec.InitConfiguration, v)
	if err != nil {
		t.Fatal(err)
	}
	return cluster, init
}

// renderStaticPods runs kubeadm's phases in a folder and returns the proxy
// variables of each manifest. The commands are the last ones of a machine: those
// for systemd are left out, as TestMachine has them.
func renderStaticPods(t *testing.T, spec *bootstrapv1.KubeadmConfigSpec, files []bootstrapv1.File, version string) map[string]map[string]string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		writeFile(t, filepath.Join(root, f.Path), f.Content)
	}
	cluster, init := kubeadmConfigs(t, spec, version)
	writeFile(t, filepath.Join(root, "kubeadm.yaml"), cluster+"\n---\n"+init)
	var script strings.Builder
	for _, command := range spec.PreKubeadmCommands {
		if !strings.HasPrefix(command, "systemctl ") {
			script.WriteString(strings.ReplaceAll(command, "/etc/", root+"/etc/") + "\n")
		}
	}
	script.WriteString(`"$0" init phase control-plane all --config /kubeadm.yaml --rootfs "$1"` + "\n")
	script.WriteString(`"$0" init phase etcd local --config /kubeadm.yaml --rootfs "$1"` + "\n")
	kubeadm := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-euc", script.String(), filepath.Join(os.Getenv(bed.BinEnv), "kubeadm"), root)
	kubeadm.Env = []string{"PATH=" + os.Getenv("PATH")}
	if out, err := kubeadm.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return readManifests(t, filepath.Join(root, "etc/kubernetes/manifests"))
}

// readManifests returns the proxy variables of each static pod in a folder.
func readManifests(t *testing.T, dir string) map[string]map[string]string {
	t.Helper()
	pods := map[string]map[string]string{}
	for _, name := range controlPlanePods {
		text, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict(text, &pod); err != nil {
			t.Fatal(err)
		}
		vars := map[string]string{}
		for _, v := range pod.Spec.Containers[0].Env {
			if strings.HasSuffix(strings.ToLower(v.Name), "_proxy") {
				vars[v.Name] = v.Value
			}
		}
		if len(pod.Spec.Containers) != 1 || len(pod.Spec.Containers[0].Command) == 0 {
			t.Errorf("%s: got %d containers, want kubeadm's one", name, len(pod.Spec.Containers))
		}
		pods[name] = vars
	}
	return pods
}

// kubeadm itself writes the variables into the manifests of static pods, by each
// way that there is, and each value exactly.
func TestKubeadmRendersStaticPods(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name    string
		pods    proxyconfig.StaticPods
		version string
		etcd    bool // gets them, too
		plain   bool // without user info
		none    bool // nothing arrives
	}{
		{name: "none", pods: proxyconfig.StaticPodsNone, version: newKubeadm, none: true},
		{name: "environment", pods: proxyconfig.StaticPodsEnvironment, version: newKubeadm},
		{name: "environment, v1beta3", pods: proxyconfig.StaticPodsEnvironment, version: oldKubeadm},
		{name: "patches", pods: proxyconfig.StaticPodsPatches, version: newKubeadm, etcd: true},
		{name: "patches, v1beta3", pods: proxyconfig.StaticPodsPatches, version: oldKubeadm, etcd: true},
		{name: "extraEnvs", pods: proxyconfig.StaticPodsExtraEnvs, version: newKubeadm, etcd: true, plain: true},
		{name: "extraEnvs with credentials", pods: proxyconfig.StaticPodsExtraEnvsWithCredentials, version: newKubeadm, etcd: true},
		// As the documentation says: Cluster API drops them.
		{name: "extraEnvs, v1beta3", pods: proxyconfig.StaticPodsExtraEnvsWithCredentials, version: oldKubeadm, none: true},
	} {
		t.Run(way.name, func(t *testing.T) {
			if way.version == oldKubeadm && semver.MustParse(newKubeadm).GTE(semver.MustParse("1.37.0")) {
				t.Skip("kubeadm reads no v1beta3 since 1.37: .ci/older runs this with 1.36")
			}
			t.Parallel()
			for _, f := range machineForms(t) {
				c := f.config(proxyAddress)
				spec := clusterAPISpec(t, kubeadmSpec(t, way.pods, c))
				got := renderStaticPods(t, spec, resolveFiles(t, spec, machineSecret(t, c)), way.version)
				if way.plain {
					c = c.WithoutCredentials()
				}
				for _, name := range controlPlanePods {
					want := environment(c)
					if way.none || name == "etcd" && !way.etcd {
						want = map[string]string{}
					}
					if !maps.Equal(got[name], want) {
						t.Errorf("%s: %s: got %.500s, want %.500s", f.name, name, fmt.Sprintf("%q", got[name]), fmt.Sprintf("%q", want))
					}
				}
			}
		})
	}
}
