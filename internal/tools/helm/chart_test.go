// Package helm tests the chart of examples/deploy with Helm's own program. Go keeps a result
// although the chart has changed, since its files are not the module's: run it with -count=1,
// as .ci/lint does.
package helm

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const chart = "../../../examples/deploy"

// helmProgram returns the path of helm, which go.mod has as a tool.
var helmProgram = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "helm").Output()
	return strings.TrimSpace(string(out)), err
})

// runHelm runs a command on the chart with values, and returns what it prints.
func runHelm(t *testing.T, command []string, namespace, values string) (string, error) {
	t.Helper()
	program, err := helmProgram()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(slices.Clone(command), chart, "--namespace", namespace, "--values", file)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w\n%s", command[0], err, &stderr)
	}
	return string(out), nil
}

// objects reads YAML documents, by kind, namespace and name.
func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(object) == 0 {
			continue
		}
		metadata, _ := object["metadata"].(map[string]any)
		id := fmt.Sprintf("%v %v/%v", object["kind"], metadata["namespace"], metadata["name"])
		if all[id] != nil {
			t.Errorf("%s is there twice", id)
		}
		all[id] = object
	}
	return all
}

// kustomize builds an overlay over a base, which may be none, with components.
func kustomize(t *testing.T, base string, components []string, overlay string) map[string]map[string]any {
	t.Helper()
	dir := t.TempDir()
	absolute, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(dir, absolute)
	if err != nil {
		t.Fatal(err)
	}
	text := overlay
	if base != "" {
		text += "\nresources:\n- " + filepath.Join(relative, base)
	}
	text += "\ncomponents:\n"
	for _, c := range components {
		text += "- " + filepath.Join(relative, "components", c) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	out, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, string(out))
}

// takeNamespace removes a Namespace, which is the release's.
func takeNamespace(t *testing.T, all map[string]map[string]any, name string) {
	t.Helper()
	id := "Namespace <nil>/" + name
	if all[id] == nil {
		t.Errorf("there is no %s in %q", id, slices.Collect(maps.Keys(all)))
	}
	delete(all, id)
}

// An overlayRow is a release, and the overlay of kustomize that says the same.
type overlayRow struct {
	name, part string
	components []string
	values     string
	overlay    string
}

const (
	imageValue   = "image: registry.example.com:5000/causeway:1\n"
	imageOverlay = "images:\n- {name: causeway, newName: registry.example.com:5000/causeway, newTag: '1'}\n" +
		"- {name: causeway-agent, newName: registry.example.com:5000/causeway, newTag: '1'}\n"
	secretValue = "invitationSecret: tunnel-agent-invitation\n" // as the base has it
)

var overlayRows = []overlayRow{
	{name: "server", part: "tunnel-server"},
	{name: "agent", part: "tunnel-agent", values: secretValue},
	{name: "provider", part: "kubeconfig-provider"},
	{name: "propagator", part: "proxy-propagator"},
	{name: "injector", part: "proxy-injector"},
	{name: "agents of Clusters", part: "tunnel-server", components: []string{"cluster-agents"}},
	{name: "tokens", part: "tunnel-server", components: []string{"token-review"}},
	{name: "all of the server", part: "tunnel-server", components: []string{"cluster-agents", "token-review", "monitoring"}},
	{name: "monitored agent", part: "tunnel-agent", components: []string{"monitoring"}, values: secretValue},
	{name: "admission", part: "kubeconfig-provider", components: []string{"route-admission", "monitoring"}},
	{name: "monitored propagator", part: "proxy-propagator", components: []string{"monitoring"}},
	{name: "Secrets of pods", part: "proxy-injector", components: []string{"pod-secrets"}},
	{name: "all of the injector", part: "proxy-injector", components: []string{"pod-secrets", "monitoring"}},
	{name: "values of the server", part: "tunnel-server", values: serverValues, overlay: serverOverlay},
	{name: "values of the agent", part: "tunnel-agent", values: agentValues, overlay: agentOverlay},
	{name: "values of the injector", part: "proxy-injector", values: injectorValues, overlay: injectorOverlay},
}

// TestSameAsKustomize: a release is, object by object, what an overlay of the base builds, but
// for the Namespace, which Helm makes.
func TestSameAsKustomize(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range overlayRows {
		seen[row.part] = true
		for _, c := range row.components {
			seen[filepath.Join("components", c)] = true
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			values := row.releaseValues()
			out, err := runHelm(t, []string{"template", "test"}, row.part, values)
			if err != nil {
				t.Fatal(err)
			}
			want := kustomize(t, row.part, row.components, imageOverlay+row.overlay)
			takeNamespace(t, want, row.part)
			if slices.Contains(row.components, "monitoring") {
				for id := range monitoring(t) {
					delete(want, id) // they are a release of their own
				}
			}
			if diff := cmp.Diff(want, objects(t, out)); diff != "" {
				t.Errorf("the chart is not what kustomize builds (-kustomize +helm):\n%s", diff)
			}
			if out, err := runHelm(t, []string{"lint", "--strict"}, row.part, values); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	for _, pattern := range []string{"*", "components/*"} {
		found, err := filepath.Glob(filepath.Join(chart, pattern, "kustomization.yaml"))
		if err != nil || len(found) == 0 {
			t.Fatalf("got %q, %v", found, err)
		}
		for _, file := range found {
			if folder, err := filepath.Rel(chart, filepath.Dir(file)); err != nil || !seen[folder] {
				t.Errorf("no row has %s, %v", folder, err)
			}
		}
	}
}

func (row overlayRow) releaseValues() string {
	return fmt.Sprintf("part: %s\ncomponents: [%s]\n%s%s", row.part, strings.Join(row.components, ", "), imageValue, row.values)
}

// monitoring are the objects of the component, with its Namespace.
func monitoring(t *testing.T) map[string]map[string]any {
	t.Helper()
	return kustomize(t, "", []string{"monitoring"}, "")
}

// TestMonitoring: what Prometheus reads is a release in a namespace of its own.
func TestMonitoring(t *testing.T) {
	out, err := runHelm(t, []string{"template", "test"}, "causeway-monitoring", "part: monitoring\n")
	if err != nil {
		t.Fatal(err)
	}
	want := monitoring(t)
	takeNamespace(t, want, "causeway-monitoring")
	if diff := cmp.Diff(want, objects(t, out)); diff != "" {
		t.Errorf("the chart is not what kustomize builds (-kustomize +helm):\n%s", diff)
	}
}

// TestReleasedImage: a chart that a release has packaged has the release's image.
func TestReleasedImage(t *testing.T) {
	program, err := helmProgram()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if out, err := exec.Command(program, "package", chart, "--version", "0.1.0", "--app-version", "v0.1.0", "--destination", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for part, want := range map[string]string{"tunnel-server": "image: ghcr.io/causewayproject/causeway:v0.1.0\n", "tunnel-agent": "image: ghcr.io/causewayproject/causeway-agent:v0.1.0\n"} {
		args := []string{"template", "test", filepath.Join(dir, "causeway-0.1.0.tgz"), "--namespace", part, "--set", "part=" + part}
		if part == "tunnel-agent" {
			args = append(args, "--set", "invitationSecret=a")
		}
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: got %v, want %q\n%s", part, err, want, out)
		}
	}
}

// TestValues: values.yaml and values.schema.json have the same values, and the defaults pass.
func TestValues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Properties map[string]any }
	if data, err := os.ReadFile(filepath.Join(chart, "values.schema.json")); err != nil {
		t.Fatal(err)
	} else if err := yaml.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global") // Helm's own, where the chart is part of another
	if len(schema.Properties) < 10 {
		t.Fatalf("got %d properties", len(schema.Properties))
	}
	for name := range schema.Properties {
		if !strings.Contains(string(text), "\n"+name+":") && !strings.Contains(string(text), "\n# "+name+":") {
			t.Errorf("values.yaml does not have %s", name)
		}
	}
	if out, err := runHelm(t, []string{"lint", "--strict"}, "tunnel-server", ""); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
