package outsider

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root = "../../.."
	main = "github.com/causewayproject/causeway"
)

// published are the folders of the modules that get a tag. A module comes after those that it
// requires.
var published = []string{"", "tunnel/prometheus", "tunnel/oidc", "controllers", "examples/programs"}

// TestOutsider packs the modules as a proxy serves them, at the version that they require of
// each other, and imports and installs them in an empty module, without replace or
// workspace. -v says what was built.
func TestOutsider(t *testing.T) {
	if testing.Short() {
		t.Skip("builds all that is published, in an empty module cache")
	}
	proxy := t.TempDir()
	version := requiredVersion(t)
	for _, folder := range published {
		serveModule(t, proxy, folder, version)
	}
	o := newOutsider(t, proxy)
	var all []string
	for _, folder := range published {
		t.Run("module "+folder, func(t *testing.T) {
			libraries, programs := packages(t, folder)
			o.imports(t, path.Join(main, folder)+"@"+version, libraries)
			for _, program := range programs {
				o.install(t, program, version)
			}
			all = append(all, libraries...)
		})
	}
	t.Run("all and the pages' programs", func(t *testing.T) { o.buildAll(t, version, all) })
}

// TestTag: the script tags all of them.
func TestTag(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "tag"))
	if want := "modules=(" + strings.Join(published[1:], " ") + ")"; err != nil || !strings.Contains(string(script), want) {
		t.Errorf(".ci/tag does not have %s: %v", want, err)
	}
}

// requiredVersion is the version of the root module that the others require.
func requiredVersion(t *testing.T) string {
	t.Helper()
	found := ""
	for _, folder := range published[1:] {
		for _, r := range parseMod(t, folder).Require {
			if r.Mod.Path != main && !strings.HasPrefix(r.Mod.Path, main+"/") {
				continue
			}
			if found == "" {
				found = r.Mod.Version
			}
			if r.Mod.Version != found {
				t.Fatalf("%s/go.mod requires %s %s, and others %s: all modules have one version", folder, r.Mod.Path, r.Mod.Version, found)
			}
		}
	}
	return found
}

func parseMod(t *testing.T, folder string) *modfile.File {
	t.Helper()
	file := filepath.Join(root, folder, "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// serveModule writes the files of a module proxy for one module.
func serveModule(t *testing.T, proxy, folder, version string) {
	t.Helper()
	f := parseMod(t, folder)
	mod := module.Version{Path: f.Module.Mod.Path, Version: version}
	escaped, err := module.EscapePath(mod.Path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(proxy, escaped, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"list": []byte(version + "\n"), version + ".mod": goMod, version + ".info": info} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := zip.CreateFromDir(out, mod, filepath.Join(root, folder)); err != nil {
		t.Fatal(err)
	}
}

// packages returns what outsiders can import of a module, and its programs.
func packages(t *testing.T, folder string) (libraries, programs []string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", "{{.Name}} {{.ImportPath}}", "./...")
	cmd.Dir = filepath.Join(root, folder)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %q: %v", folder, err)
	}
	for line := range strings.Lines(string(out)) {
		name, importPath, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.Contains(importPath+"/", "/internal/"):
		case name == "main":
			programs = append(programs, importPath)
		default:
			libraries = append(libraries, importPath)
		}
	}
	return libraries, programs
}

// outsider runs go with an empty module cache and nothing of this tree but the proxy.
type outsider struct{ env []string }

func newOutsider(t *testing.T, proxy string) *outsider {
	t.Helper()
	out, err := exec.Command("go", "env", "-json", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	var env struct{ GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal(out, &env); err != nil {
		t.Fatal(err)
	}
	folder := func(dir string) string { return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String() }
	proxies := []string{folder(proxy), folder(filepath.Join(env.GOMODCACHE, "cache", "download")), env.GOPROXY}
	return &outsider{append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GONOSUMDB="+main+","+main+"/*",
		"GOMODCACHE="+t.TempDir(), "GOPROXY="+strings.Join(proxies, ","))}
}

func (o *outsider) run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, o.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// newModule returns the folder of an empty module.
func (o *outsider) newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	o.run(t, dir, "mod", "init", "example.com/outsider")
	return dir
}

// imports adds one module to an empty one, and finds all that its packages need.
func (o *outsider) imports(t *testing.T, mod string, libraries []string) {
	dir := o.newModule(t)
	o.run(t, dir, "get", mod)
	if len(libraries) > 0 {
		o.run(t, dir, append([]string{"list", "-deps"}, libraries...)...)
	}
	t.Logf("go get %s: %s", mod, strings.Join(libraries, " "))
}

func (o *outsider) install(t *testing.T, program, version string) {
	bin := t.TempDir()
	with := &outsider{append(o.env, "GOBIN="+bin)}
	with.run(t, bin, "install", program+"@"+version)
	out, err := exec.Command("go", "version", "-m", filepath.Join(bin, path.Base(program))).Output()
	if err != nil || !strings.Contains(string(out), "\t"+version+"\t") {
		t.Errorf("go install %s@%s: got a program of another version: %v\n%s", program, version, err, out)
	}
	t.Logf("go install %s@%s", program, version)
}

var goBlock = regexp.MustCompile("(?ms)^```go.*?\n(.*?)^```")

// buildAll builds all libraries in one module, and the Go programs of the README and of the
// pages.
func (o *outsider) buildAll(t *testing.T, version string, libraries []string) {
	dir := o.newModule(t)
	source := "package outsider\n\nimport (\n"
	for _, library := range libraries {
		source += fmt.Sprintf("\t_ %q\n", library)
	}
	write(t, filepath.Join(dir, "outsider.go"), source+")\n")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range goBlock.FindAllStringSubmatch(string(text), -1) {
			n++
			block := filepath.Join(dir, fmt.Sprintf("block%d", n))
			if err := os.Mkdir(block, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(block, "block.go"), m[1])
		}
	}
	for _, folder := range published {
		o.run(t, dir, "get", path.Join(main, folder)+"@"+version)
	}
	o.run(t, dir, "build", "-o", os.DevNull, "./...")
	if t.Logf("%d blocks of Go", n); n < 8 {
		t.Errorf("got %d blocks: is the pattern still right?", n)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
