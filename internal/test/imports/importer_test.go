package imports

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// importers are what a module that imports us may require already: the first
// release of each minor version of client-go from the floor of go.mod on.
var importers = []string{"v0.34.0", "v0.35.0", "v0.36.0", "v0.37.0"}

// imported are the packages that such a module imports, one at a time. Each must
// leave the versions of Kubernetes' modules as they are.
var imported = []string{"/noproxy", "/dialer", "/tunnel", "/tunnel/gateway", "/kubeconfig", "/kubeconfig/connect"}

// TestImporter runs go mod tidy in modules on each version of client-go, before
// and after they import one of our packages, and compares. -v prints what moves.
func TestImporter(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go mod tidy for each version and package")
	}
	// Read here, so that the result is not cached when the file changes.
	if _, err := os.ReadFile("../../../go.mod"); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range importers {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			importEach(t, version, root)
		})
	}
}

// importEach has a module on a version of client-go import each package.
func importEach(t *testing.T, version, root string) {
	before, err := tidyModules(t, version, root, "")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("client-go %s is not at hand: %v", version, err)
	}
	for _, name := range imported {
		after, err := tidyModules(t, version, root, name)
		if err != nil {
			t.Fatal(err)
		}
		var kubernetes, others []string
		for _, path := range slices.Sorted(maps.Keys(before)) {
			was, is := before[path], after[path]
			switch {
			case is == was || is == "":
			case strings.HasPrefix(path, "k8s.io/") || strings.HasPrefix(path, "sigs.k8s.io/"):
				kubernetes = append(kubernetes, path+" "+was+" to "+is)
			default:
				others = append(others, strings.TrimPrefix(path, "golang.org/")+" "+was+" to "+is)
			}
		}
		if len(kubernetes) > 0 {
			t.Errorf("the import of %s%s moves %s", module, name, strings.Join(kubernetes, ", "))
		}
		t.Logf("the import of %s moves %s", name, strings.Join(others, ", "))
	}
}

// tidyModules returns the version of each module, and of Go, that go mod tidy
// finds for a program on this version of client-go which imports the package
// of ours, or none.
func tidyModules(t *testing.T, version, root, name string) (map[string]string, error) {
	t.Helper()
	dir := t.TempDir()
	goMod := "module example.com/importer\n\ngo 1.24.0\n\nrequire (\n"
	for _, path := range []string{"api", "apimachinery", "client-go"} {
		goMod += "\tk8s.io/" + path + " " + version + "\n"
	}
	goMod += ")\n"
	source := "package main\n\nimport (\n\t_ \"k8s.io/api/core/v1\"\n\t_ \"k8s.io/client-go/kubernetes\"\n\t_ \"k8s.io/client-go/tools/clientcmd\"\n"
	if name != "" {
		goMod += "\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n"
		source += "\t_ \"" + module + name + "\"\n"
	}
	source += ")\n\nfunc main() {}\n"
	for file, text := range map[string]string{"go.mod": goMod, "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := goIn(dir, "mod", "tidy"); err != nil {
		return nil, err
	}
	out, err := goIn(dir, "list", "-m", "-f", "{{.Path}} {{or .Version .GoVersion}}", "all")
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for line := range strings.Lines(out) {
		path, found, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path == "example.com/importer" {
			path = "go"
		}
		versions[path] = found
	}
	return versions, nil
}

func goIn(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out), nil
}

// TestNoReplace: an importer does not see the replace directives of what it
// imports, and "go install" refuses them.
func TestNoReplace(t *testing.T) {
	for _, published := range []string{".", "controllers", "tunnel/prometheus", "tunnel/oidc", "examples/programs"} {
		text, err := os.ReadFile(filepath.Join("../../..", published, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "replace") {
				t.Errorf("%s/go.mod: %s", published, strings.TrimSpace(line))
			}
		}
	}
}
