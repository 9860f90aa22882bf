// Package imports holds the import rules of the module: who may import whom,
// and what a user of one package pulls into a build.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/causewayproject/causeway"

// arrows are the imports that are allowed between packages of the module,
// beside internal/test in examples. A package that is not listed fails.
var arrows = map[string][]string{
	"":                           {},
	"/dialer":                    {"/internal/printable", "/noproxy", "/internal/abort", "/internal/ended", "/internal/mask", "/internal/race", "/internal/relay", "/internal/rotate"},
	"/tunnel/egress":             {"/internal/quote", "/internal/yamledit"},
	"/kubeconfig":                {"/dialer", "/internal/hostport", "/internal/yamledit", "/kubeconfig/internal/entry", "/kubeconfig/internal/field"},
	"/kubeconfig/connect":        {"/internal/clusterapi", "/internal/printable", "/dialer", "/kubeconfig", "/kubeconfig/internal/entry", "/kubeconfig/internal/field", "/kubeconfig/internal/route", "/kubeconfig/probe", "/tunnel/gateway", "/internal/abort", "/internal/group", "/internal/relay"},
	"/kubeconfig/internal/entry": {"/internal/keypair", "/internal/quote", "/internal/yamledit", "/kubeconfig/internal/field"},
	"/kubeconfig/internal/field": {"/internal/printable", "/dialer", "/noproxy", "/internal/keypair"},
	"/kubeconfig/internal/route": {"/dialer", "/noproxy", "/internal/abort", "/internal/hostport", "/internal/keypair", "/kubeconfig/internal/entry", "/kubeconfig/internal/field"},
	"/kubeconfig/probe":          {"/internal/printable", "/dialer", "/internal/abort", "/internal/ended", "/internal/mask", "/kubeconfig/internal/entry", "/kubeconfig/internal/field", "/kubeconfig/internal/route"},
	"/kubeconfig/provider":       {"/internal/clusterapi", "/internal/hostport", "/internal/printable", "/internal/keypair", "/internal/owner", "/internal/quote", "/internal/secretname", "/internal/yamledit", "/kubeconfig", "/kubeconfig/internal/entry", "/kubeconfig/internal/field", "/kubeconfig/probe", "/noproxy", "/proxyconfig"},
	"/internal/linktest":         {"/internal/abort"},
	"/noproxy":                   {},
	"/proxyconfig":               {"/internal/quote", "/internal/secretname", "/noproxy"},
	"/proxyconfig/propagate":     {"/internal/clusterapi", "/internal/owner", "/noproxy", "/proxyconfig"},
	"/proxyconfig/webhook":       {"/proxyconfig", "/internal/admission", "/internal/group", "/internal/smallfile", "/internal/turns"},
	"/tunnel":                    {"/internal/budget", "/internal/printable", "/internal/abort", "/internal/admission", "/internal/backoff", "/internal/ended", "/internal/envfile", "/internal/group", "/internal/hostport", "/internal/mask", "/internal/mux", "/internal/relay", "/internal/rotate", "/internal/smallfile", "/internal/turns", "/tunnel/internal/carrier", "/tunnel/internal/session", "/tunnel/internal/socket", "/tunnel/internal/target", "/tunnel/internal/websocket", "/tunnel/internal/wire"},
	"/tunnel/internal/carrier":   {"/internal/admission", "/internal/group", "/tunnel/internal/socket", "/tunnel/internal/websocket"},
	"/tunnel/internal/session":   {"/internal/budget", "/internal/ended", "/internal/group", "/internal/mux", "/internal/turns", "/tunnel/internal/carrier", "/tunnel/internal/socket", "/tunnel/internal/wire"},
	"/tunnel/internal/socket":    {},
	"/tunnel/internal/target":    {"/internal/ended", "/internal/race", "/tunnel/internal/socket"},
	"/tunnel/internal/websocket": {"/internal/ended", "/internal/mask", "/internal/printable", "/tunnel/internal/socket"},
	"/tunnel/internal/wire":      {"/internal/printable"},
	"/tunnel/gateway":            {"/internal/budget", "/internal/printable", "/internal/abort", "/internal/admission", "/internal/group", "/internal/relay", "/internal/turns", "/tunnel/internal/socket"},
	"/tunnel/kubernetes":         {"/tunnel", "/tunnel/gateway", "/internal/backoff", "/internal/turns"},
	"/tunnel/status":             {"/internal/printable", "/tunnel"},
	"/examples/deploy":           {},
	"/examples/quickstart":       {"/dialer", "/kubeconfig", "/kubeconfig/connect", "/tunnel", "/tunnel/gateway", "/internal/test/apitest", "/internal/test/pki", "/internal/test/proxytest"},
	"/examples/tunnelssh":        {"/internal/relay", "/tunnel"},
	"/internal/abort":            {},
	"/internal/budget":           {},
	"/internal/hostport":         {},
	"/internal/keypair":          {},
	"/internal/mask":             {"/internal/printable"},
	"/internal/admission":        {"/internal/abort", "/internal/turns"},
	"/internal/backoff":          {},
	"/internal/envfile":          {},
	"/internal/group":            {"/internal/backoff"},
	"/internal/ended":            {},
	"/internal/rotate":           {},
	"/internal/mux":              {"/internal/budget", "/internal/abort"},
	"/internal/quote":            {},
	"/internal/clusterapi":       {"/internal/hostport"},
	"/internal/owner":            {},
	"/internal/secretname":       {},
	"/internal/printable":        {},
	"/internal/race":             {"/internal/abort"},
	"/internal/relay":            {"/internal/abort", "/internal/ended"},
	"/internal/smallfile":        {},
	"/internal/turns":            {},
	"/internal/yamledit":         {"/internal/quote"},
	"/internal/test/apitest":     {},
	"/internal/test/enroltest":   {},
	"/internal/test/clitest":     {},
	"/internal/test/dnstest":     {},
	"/internal/test/docs":        {},
	"/internal/test/imports":     {},
	"/internal/test/kubetest":    {"/internal/test/pki", "/kubeconfig", "/kubeconfig/connect"},
	"/internal/test/pki":         {},
	"/internal/test/proxytest":   {"/internal/relay"},
	"/internal/test/sockettest":  {},
	"/internal/test/storetest":   {"/tunnel"},
	"/internal/test/targettest":  {},
	"/internal/test/yamuxagent":  {},
}

// light are the packages that pull in no Kubernetes, metrics or RPC library.
var light = []string{
	"",
	"/dialer",
	"/internal/linktest",
	"/noproxy",
	"/tunnel",
	"/tunnel/internal/target",
	"/tunnel/internal/wire",
	"/tunnel/gateway",
	"/tunnel/internal/carrier",
	"/tunnel/internal/socket",
	"/tunnel/internal/websocket",
	"/tunnel/status",
	"/internal/abort",
	"/internal/admission",
	"/internal/backoff",
	"/internal/group",
	"/internal/mux",
	"/internal/quote",
	"/internal/race",
	"/internal/relay",
	"/internal/turns",
	"/internal/test/dnstest",
	"/internal/test/enroltest",
	"/internal/test/pki",
	"/internal/test/proxytest",
	"/internal/test/sockettest",
	"/internal/test/storetest",
	"/internal/test/targettest",
}

// lightButForYAML are those that read it: a module without dependencies.
var lightButForYAML = []string{"/tunnel/egress"}

const yamlModule = "sigs.k8s.io/yaml"

var heavy = []string{"k8s.io/", "sigs.k8s.io/", "github.com/prometheus/", "google.golang.org/grpc"}

// direct are the modules that the root go.mod may require itself.
var direct = []string{
	"github.com/google/go-cmp",
	"github.com/hashicorp/yamux",
	"go.uber.org/goleak",
	"go.yaml.in/yaml/v3",
	"golang.org/x/net",
	"gopkg.in/evanphx/json-patch.v4", // in tests: what kube-apiserver applies patches with
	"k8s.io/api",
	"k8s.io/apimachinery",
	"k8s.io/client-go",
	yamlModule,
}

// published are the modules below the root that others import or install: they
// import nothing of internal/ that an importer of the library could not, beside what is
// listed. All modules have the same version.
var published = map[string][]string{"controllers": {"/internal/clusterapi", "/internal/keypair", "/internal/owner", "/internal/printable", "/internal/secretname", "/internal/turns"}}

type pkg struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func goTool(t *testing.T, args ...string) []byte {
	t.Helper()
	return goToolIn(t, ".", args...)
}

// goToolIn runs in a module of the repository.
func goToolIn(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("../../..", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out
}

func packages(t *testing.T) map[string]pkg {
	t.Helper()
	return packagesIn(t, ".")
}

func packagesIn(t *testing.T, dir string) map[string]pkg {
	t.Helper()
	found := map[string]pkg{}
	dec := json.NewDecoder(bytes.NewReader(goToolIn(t, dir, "list", "-json=ImportPath,GoFiles,Imports,Deps", "./...")))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

func TestArrows(t *testing.T) {
	for name, p := range packages(t) {
		allowed, ok := arrows[name]
		if !ok {
			t.Errorf("%s is not in the list of this test: say what it may import", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module); ours && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}

func TestPublishedModules(t *testing.T) {
	for dir, allowed := range published {
		found := packagesIn(t, dir)
		if len(found) == 0 {
			t.Errorf("there is no package in %s", dir)
		}
		for _, p := range found {
			for _, imp := range p.Imports {
				if strings.HasPrefix(imp, module+"/internal/") && !slices.Contains(allowed, strings.TrimPrefix(imp, module)) {
					t.Errorf("%s imports %s", p.ImportPath, imp)
				}
			}
		}
	}
}

func TestLightPackages(t *testing.T) {
	found := packages(t)
	for _, name := range slices.Concat(light, lightButForYAML) {
		p, ok := found[name]
		if !ok {
			t.Errorf("there is no package %s%s", module, name)
		}
		yaml := slices.Contains(lightButForYAML, name)
		for _, dep := range p.Deps {
			if yaml && (dep == yamlModule || strings.HasPrefix(dep, "go.yaml.in/") || strings.HasPrefix(dep, yamlModule+"/")) {
				continue
			}
			if slices.ContainsFunc(heavy, func(prefix string) bool { return strings.HasPrefix(dep, prefix) }) {
				t.Errorf("%s depends on %s", p.ImportPath, dep)
			}
		}
	}
}

// client-go's clientcmd has some 320 packages. A program that only merges
// kubeconfigs links little more, and a client of one cluster no typed clients.
func TestLinkedPackages(t *testing.T) {
	found := packages(t)
	for name, most := range map[string]int{"/kubeconfig": 350, "/kubeconfig/probe": 350, "/kubeconfig/connect": 380} {
		if n := len(found[name].Deps); n == 0 || n > most {
			t.Errorf("%s depends on %d packages, want at most %d", name, n, most)
		}
	}
}

// Nothing here, tests included, imports client-go's whole clientset. It takes 20 seconds of a processor to
// compile, before the first test can run, and megabytes in a program. Take the typed client of an API
// group instead, such as kubernetes/typed/core/v1.
func TestNoClientset(t *testing.T) {
	for dep := range strings.Lines(string(goTool(t, "list", "-deps", "-test", "./..."))) {
		if dep == "k8s.io/client-go/kubernetes\n" {
			t.Error("a package, or a test, imports k8s.io/client-go/kubernetes")
		}
	}
}

// A program that only merges has at most 16 MB as it is shipped: 14.8 MB, and 21.0 MB
// with symbols and DWARF. Without k8s.io/api/core/v1, whose Secret kubeconfig.Secret
// returns, it would have 9.4 and 13.6 MB: the init of core/v1 keeps all its types.
func TestMergeProgramSize(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	source := write("main.go", []byte(`package main

import "github.com/causewayproject/causeway/kubeconfig"

func main() {
	merged, err := kubeconfig.Merge([]byte("kind: Config"), kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: "http://proxy"}})
	println(string(merged), err)
}
`))
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "merge-program", "main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "merge")
	goTool(t, "build", "-overlay", write("overlay.json", overlay), "-ldflags=-s -w", "-o", program, "./merge-program")
	info, err := os.Stat(program)
	if err != nil || info.Size() > 16e6 {
		t.Errorf("got %d bytes, %v; want at most 16 MB", info.Size(), err)
	}
}

func TestRootPackageIsProse(t *testing.T) {
	if got := packages(t)[""].GoFiles; !slices.Equal(got, []string{"doc.go"}) {
		t.Errorf("got files %q, want doc.go alone", got)
	}
}

func TestDirectRequirements(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
		Tool    []any
	}
	if err := json.Unmarshal(goTool(t, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if !r.Indirect && !slices.Contains(direct, r.Path) {
			t.Errorf("go.mod requires %s", r.Path)
		}
	}
	if len(mod.Require) == 0 || len(mod.Replace)+len(mod.Tool) > 0 {
		t.Errorf("got %d requirements, %d replacements, %d tools; want some, none, none", len(mod.Require), len(mod.Replace), len(mod.Tool))
	}
}
