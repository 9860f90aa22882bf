package propagate_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// The host may be a URL, as CAPA has it for EKS.
func TestReadClusterHost(t *testing.T) {
	for host, want := range map[string][]string{
		"":         nil,
		"api.test": {"api.test"},
		"https://X.gr7.eu-west-1.eks.amazonaws.com": {"X.gr7.eu-west-1.eks.amazonaws.com"},
		"HTTPS://[2001:db8::1]:6443/":               {"2001:db8::1"},
		"https://rancher.test/k8s/clusters/c-m-1":   {"rancher.test"},
		"http://192.0.2.1":                          {"192.0.2.1"},
	} {
		c, err := propagate.ReadCluster(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"namespace": "org", "name": "prod"},
			"spec": map[string]any{"controlPlaneEndpoint": map[string]any{"host": host}},
		}})
		if err != nil || !slices.Equal(c.Facts.ControlPlaneHosts, want) {
			t.Errorf("%q: got %q, %v, want %q", host, c.Facts.ControlPlaneHosts, err, want)
		}
	}
}
