package e2e

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	kubeadmv1beta4 "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types/upstreamv1beta4"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/proxyconfig"
)

const (
	kubeletDropIn = "/etc/systemd/system/kubelet.service.d/http-proxy.conf"
	dropInSecret  = "prod-systemd-proxy"
	dropInKey     = "containerdProxy"
)

func kubeadmFiles(t *testing.T) []proxyconfig.File {
	t.Helper()
	files, err := proxyconfig.KubeadmFiles(proxyconfig.ClusterValues{Name: "prod"}.SystemdSecret(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The entries are Cluster API's, with no field that it does not know, and none
// of kubeadm's own configuration.
func TestKubeadmFilesAreClusterAPIs(t *testing.T) {
	text, err := yaml.Marshal(map[string]any{"files": kubeadmFiles(t)})
	if err != nil {
		t.Fatal(err)
	}
	var spec bootstrapv1.KubeadmConfigSpec
	if err := yaml.UnmarshalStrict(text, &spec); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(spec.Files) != 1 {
		t.Fatalf("got %d files, want one", len(spec.Files))
	}
	secret := bootstrapv1.SecretFileSource{Name: dropInSecret, Key: dropInKey}
	if f := spec.Files[0]; f.Path != kubeletDropIn || f.Permissions != "0600" || f.ContentFrom.Secret != secret {
		t.Errorf("got %+v", f)
	}
	for _, kubeadm := range []any{&kubeadmv1beta4.InitConfiguration{}, &kubeadmv1beta4.JoinConfiguration{}, &kubeadmv1beta4.ClusterConfiguration{}} {
		if err := yaml.UnmarshalStrict(text, kubeadm); err == nil {
			t.Errorf("%T has files, too: the documentation says that kubeadm has none", kubeadm)
		}
	}
}

// testKubeadmFiles has the API server check the entries by Cluster API's
// schemas, of both versions: it refuses what these don't have.
func (m *management) testKubeadmFiles(t *testing.T) {
	t.Parallel()
	const namespace = "kubeadm-files"
	m.namespace(t, namespace)
	text, err := yaml.Marshal(map[string]any{"spec": map[string]any{"files": kubeadmFiles(t)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		config := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &config.Object); err != nil {
			t.Fatal(err)
		}
		config.SetAPIVersion("bootstrap.cluster.x-k8s.io/" + version)
		config.SetKind("KubeadmConfig")
		config.SetNamespace(namespace)
		config.SetName(version)
		if err := m.admin.Create(t.Context(), config.DeepCopy(), client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s: %v", version, err)
		}
		config.SetName(version + "-wrong")
		config.Object["spec"] = map[string]any{"files": []any{map[string]any{"path": kubeletDropIn, "mode": "0600"}}}
		if err := m.admin.Create(t.Context(), config, client.FieldValidation(metav1.FieldValidationStrict)); err == nil {
			t.Errorf("%s: got a field that it does not have taken", version)
		}
	}
}

// What Cluster API makes of an entry and of its Secret for cloud-init is the
// drop-in, byte for byte.
func TestCloudInitHasTheDropIn(t *testing.T) {
	file := kubeadmFiles(t)[0]
	for _, f := range passwordForms() {
		o, err := proxyconfig.ClusterValues{Name: "prod", Namespace: "org", Config: f.config("proxy.test:3128")}.Build()
		if err != nil {
			t.Fatal(err)
		}
		dropIn := o.SystemdProxy.Data[file.ContentFrom.Secret.Key]
		input := &cloudinit.NodeInput{BaseUserData: cloudinit.BaseUserData{
			// As its controller resolves contentFrom.
			AdditionalFiles: []bootstrapv1.File{{Path: file.Path, Permissions: file.Permissions, Content: string(dropIn)}},
		}}
		text, err := cloudinit.NewNode(input)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			WriteFiles []struct{ Path, Permissions, Content string } `json:"write_files"`
		}
		if err := yaml.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v\n%s", f.name, err, text)
		}
		w := got.WriteFiles[0]
		if w.Path != kubeletDropIn || w.Permissions != "0600" || !bytes.Equal([]byte(w.Content), dropIn) {
			t.Errorf("%s: got %+v, want\n%s", f.name, w, dropIn)
		}
	}
}
