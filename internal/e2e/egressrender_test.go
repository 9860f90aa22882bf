package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/tunnel/egress"
)

// testRender: kubeadm takes what "egress render" prints, and makes of it what it prints for
// the manifest itself.
func testRender(t *testing.T, program string) {
	gateway := []string{"--image", "causeway:test", "--gateway", "http://gateway.example.com:3128"}
	render := func(phase egress.Phase, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, append(append([]string{"egress", "render", string(phase), "default/prod"}, gateway...), args...)...).Output()
		if err != nil {
			t.Fatalf("%s %q: %v", phase, args, err)
		}
		return string(out)
	}
	for _, phase := range egress.Phases() {
		t.Run(string(phase), func(t *testing.T) {
			manifest := kubeadmManifest(t, render(phase, "--credentials", "/etc/kubernetes/causeway-egress"))
			if got, err := egress.PhaseOf(manifest); got != phase || err != nil {
				t.Errorf("kubeadm: got the phase %s, %v of\n%s", got, err, manifest)
			}
		})
	}
}

// kubeadmManifest returns the manifest of kube-apiserver that kubeadm writes with a part of
// a KubeadmConfig.
func kubeadmManifest(t *testing.T, text string) []byte {
	t.Helper()
	var part struct {
		Files             []struct{ Path, Content string }
		InitConfiguration map[string]any
	}
	if err := yaml.Unmarshal([]byte(text), &part); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, f := range part.Files {
		writeFile(t, filepath.Join(root, f.Path), f.Content)
	}
	init := map[string]any{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "InitConfiguration", "localAPIEndpoint": map[string]any{"advertiseAddress": "192.0.2.10"}}
	maps.Copy(init, part.InitConfiguration)
	config, err := yaml.Marshal(init)
	if err != nil {
		t.Fatal(err)
	}
	config = append(config, "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v"+newKubeadm+"\n"...)
	writeFile(t, filepath.Join(root, "kubeadm.yaml"), string(config))
	kubeadm := exec.CommandContext(t.Context(), "unshare", "--net", filepath.Join(os.Getenv(bed.BinEnv), "kubeadm"),
		"init", "phase", "control-plane", "apiserver", "--config", "/kubeadm.yaml", "--rootfs", root)
	if out, err := kubeadm.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	manifest, err := os.ReadFile(filepath.Join(root, "etc/kubernetes/manifests/kube-apiserver.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(manifest, &corev1.Pod{}); err != nil {
		t.Errorf("what kubeadm wrote: %v", err)
	}
	return manifest
}
