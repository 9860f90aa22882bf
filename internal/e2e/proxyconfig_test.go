package e2e

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	//lint:ignore SA1019 the documentation promises this version, too
	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/proxyconfig"
)

const (
	kubeletDropIn = "/etc/systemd/system/kubelet.service.d/http-proxy.conf"
	dropInSecret  = "prod-systemd-proxy"
)

// kubeadmSpec is what machines of the Cluster prod get.
func kubeadmSpec(t *testing.T, way proxyconfig.StaticPods, c proxyconfig.Config, units ...string) *proxyconfig.KubeadmSpec {
	t.Helper()
	spec, err := proxyconfig.Kubeadm{Secret: dropInSecret, Units: units, StaticPods: way, Config: c}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

var waysOfStaticPods = []proxyconfig.StaticPods{
	proxyconfig.StaticPodsNone, proxyconfig.StaticPodsEnvironment, proxyconfig.StaticPodsPatches,
	proxyconfig.StaticPodsExtraEnvs, proxyconfig.StaticPodsExtraEnvsWithCredentials,
}

// The spec is Cluster API's, of both versions, with no field that it does not know.
func TestKubeadmSpecIsClusterAPIs(t *testing.T) {
	c := passwordForms()[0].config("proxy.test:3128")
	for _, way := range waysOfStaticPods {
		want := kubeadmSpec(t, way, c, "kubelet")
		text, err := yaml.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []any{&bootstrapv1.KubeadmConfigSpec{}, &bootstrapv1beta1.KubeadmConfigSpec{}} {
			if err := yaml.UnmarshalStrict(text, spec); err != nil {
				t.Fatalf("%T: %v\n%s", spec, err, text)
			}
			again, err := yaml.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			var got proxyconfig.KubeadmSpec
			if err := yaml.Unmarshal(again, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, &got); diff != "" {
				t.Errorf("%T: %s", spec, diff)
			}
		}
	}
}

// testKubeadmFiles has the API server check the spec by Cluster API's schemas, of
// both versions: it refuses what these don't have.
func (m *management) testKubeadmFiles(t *testing.T) {
	t.Parallel()
	const namespace = "kubeadm-files"
	m.namespace(t, namespace)
	for _, version := range []string{"v1beta1", "v1beta2"} {
		config := &unstructured.Unstructured{Object: map[string]any{}}
		config.SetAPIVersion("bootstrap.cluster.x-k8s.io/" + version)
		config.SetKind("KubeadmConfig")
		config.SetNamespace(namespace)
		for _, way := range waysOfStaticPods {
			spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kubeadmSpec(t, way, passwordForms()[0].config("proxy.test:3128"), "kubelet"))
			if err != nil {
				t.Fatal(err)
			}
			config.Object["spec"] = spec
			config.SetName(fmt.Sprint(version, "-", int(way)))
			if err := m.admin.Create(t.Context(), config.DeepCopy(), client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Errorf("%s: %v", version, err)
			}
		}
		config.SetName(version + "-wrong")
		config.Object["spec"] = map[string]any{"files": []any{map[string]any{"path": kubeletDropIn, "mode": "0600"}}}
		if err := m.admin.Create(t.Context(), config, client.FieldValidation(metav1.FieldValidationStrict)); err == nil {
			t.Errorf("%s: got a field that it does not have taken", version)
		}
	}
}
