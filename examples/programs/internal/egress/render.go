package egress

import (
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel/egress"
)

const patchesDir = "/etc/kubernetes/patches/causeway-egress"

// renderPatches returns the patches of a Deployment as a component of kustomize, and those
// of a static pod as part of a KubeadmConfig's spec.
func (f *sidecarFlags) renderPatches(phase egress.Phase) ([]byte, error) {
	strategic, flag, err := f.sidecar.Patches(phase)
	switch {
	case err != nil:
		return nil, cli.FieldMistake(err, fieldFlags...)
	case f.deployment != "":
		return f.renderComponent(strategic, flag)
	case phase == egress.PhaseOff: // kubeadm refuses a directory that is not there
		return yaml.Marshal(map[string]any{"files": []any{}})
	}
	files := []any{}
	for _, file := range []struct {
		name    string
		content []byte
	}{{"kube-apiserver0+strategic.yaml", strategic}, {"kube-apiserver1+json.yaml", flag}} {
		if file.content != nil {
			files = append(files, map[string]any{"path": patchesDir + "/" + file.name, "owner": "root:root", "permissions": "0600", "content": string(file.content)})
		}
	}
	patches := map[string]any{"patches": map[string]any{"directory": patchesDir}}
	return yaml.Marshal(map[string]any{"files": files, "initConfiguration": patches, "joinConfiguration": patches})
}

func (f *sidecarFlags) renderComponent(strategic, flag []byte) ([]byte, error) {
	namespace, name, _ := strings.Cut(f.deployment, "/")
	patches := []any{}
	if strategic != nil {
		var pod map[string]any
		if err := yaml.Unmarshal(strategic, &pod); err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": namespace, "name": name},
			"spec": map[string]any{"template": pod},
		})
		if err != nil {
			return nil, err
		}
		patches = append(patches, map[string]any{"patch": string(text)})
	}
	if flag != nil {
		patches = append(patches, map[string]any{
			"target": map[string]any{"kind": "Deployment", "namespace": namespace, "name": name},
			"patch":  strings.Replace(string(flag), "/spec/containers", "/spec/template/spec/containers", 1),
		})
	}
	return yaml.Marshal(map[string]any{"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": patches})
}
