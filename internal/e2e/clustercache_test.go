package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/causewayproject/causeway/kubeconfig"
)

// Cluster API's ClusterCache is connected by the kubeconfigs that a Spec makes,
// each to its own cluster, and so is kubectl. What the extension says is nothing
// to them.
func (m *management) testSpec(t *testing.T) {
	t.Parallel()
	const namespace = "spec"
	input, want := capiInput{Namespace: namespace}, map[string]workload{}
	for _, w := range m.workloads() {
		m.write(t, m.bear(t, namespace, w.name, w, birth{}), w)
		want[w.name] = w
		input.Clusters = append(input.Clusters, w.name)
		s, err := m.secret(t.Context(), namespace, w.name+"-kubeconfig")
		if err != nil {
			t.Fatal(err)
		}
		value := s.Data[kubeconfig.SecretKey]
		if !bytes.Contains(value, []byte(kubeconfig.ExtensionName)) {
			t.Errorf("there is no extension in\n%s", value)
		}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, value, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := m.bed.Network.Client.Run(t.Context(), m.bed.Kubectl(path, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"))
		if err != nil || out != w.system {
			t.Errorf("kubectl: got %q, %v; want %s", out, err, w.system)
		}
	}
	waitConnected(t, m.startCAPI(t, input), want, time.Time{})
}
