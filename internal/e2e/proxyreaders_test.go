package e2e

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/docker/cli/pkg/kvfile"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/proxyconfig"
)

// proxyReader is a program that uses a rendering to ask for both targets, or for
// the first alone. FILE in args is the rendering.
type proxyReader struct {
	name   string
	args   []string
	env    string // a variable that names the rendering
	render func(proxyconfig.Config) (string, error)
	once   bool
}

const (
	farTarget       = "http://far.test/x"
	farTargetTLS    = "https://far.test/x"
	sourceFile      = ". FILE && exec "
	pythonOpensBoth = `import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try: urllib.request.urlopen(url)
    except OSError as e: print(e)
`
)

func proxyReaders(t *testing.T) []proxyReader {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sh := func(name string, args ...string) proxyReader {
		script := []string{"sh", "-c", sourceFile + `"$@"`, "sh"}
		return proxyReader{name: name, args: append(script, args...), render: proxyconfig.Config.ShellExports}
	}
	return []proxyReader{
		sh("curl", "curl", "-sS", farTarget, farTargetTLS),
		sh("wget", "wget", "-qO-", farTarget, farTargetTLS),
		sh("python3", "python3", "-c", pythonOpensBoth, farTarget, farTargetTLS),
		sh("net/http", "env", bed.RoleEnv+"=get", "GORACE=atexit_sleep_ms=0", self),
		{name: "git", args: []string{"git", "ls-remote", farTarget}, env: "GIT_CONFIG_GLOBAL", render: proxyconfig.Config.GitConfig, once: true},
		{name: "apt", args: []string{"/usr/lib/apt/apt-helper", "download-file", farTarget, "/dev/null"}, env: "APT_CONFIG", render: proxyconfig.Config.AptConfig, once: true},
		{name: "npm", args: []string{"npm", "view", "x", "--registry", "http://far.test/", "--userconfig", "FILE", "--fetch-retries=0", "--no-update-notifier"}, render: proxyconfig.Config.NPMConfig, once: true},
	}
}

// getRole asks for both targets by the environment, as Go programs do.
func getRole(ctx context.Context, _ io.Reader, out io.Writer) error {
	for _, target := range []string{farTarget, farTargetTLS} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			io.WriteString(out, err.Error()+"\n") // https: the proxy has no tunnel
			continue
		}
		res.Body.Close()
	}
	return nil
}

// Real programs send the password to the proxy that was meant.
func TestProgramsSendThePassword(t *testing.T) {
	t.Parallel()
	for _, r := range proxyReaders(t) {
		t.Run(strings.ReplaceAll(r.name, "/", " "), func(t *testing.T) {
			t.Parallel()
			forms := passwordForms()
			switch r.name {
			case "npm":
				forms = forms[:5] // a second each
			case "git": // with a libcurl of before 8.8: see GitConfig
				forms = slices.DeleteFunc(forms, func(f passwordForm) bool { return f.name == twice })
			}
			for _, f := range forms {
				proxy := newPasswordProxy(t) // nobody comes late to the next one's
				text, err := r.render(f.config(proxy.address()))
				if err != nil {
					t.Fatal(err)
				}
				out := r.run(t, text)
				want := []string{"far.test us@er " + f.password, "far.test:443 us@er " + f.password}
				if r.once {
					want = want[:1]
				}
				if got := proxy.take(); !slices.Equal(got, want) {
					t.Errorf("%s: got %q, want %q\n%s", f.name, got, want, out)
				}
			}
		})
	}
}

// run returns the output: the program fails, as the proxy has nothing for it.
func (r proxyReader) run(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(sharedDir(t), "file")
	writeFile(t, file, text)
	var args []string
	for _, arg := range r.args {
		args = append(args, strings.ReplaceAll(arg, "FILE", file))
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = filepath.Dir(file)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "GIT_TERMINAL_PROMPT=0"}
	if r.env != "" {
		cmd.Env = append(cmd.Env, r.env+"="+file)
	}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// The environment that the formats' own readers make of a rendering.
func TestReadersOfEnvironments(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name   string
		render func(proxyconfig.Config) (string, error)
		read   func(t *testing.T, path string) map[string]string
	}{
		{"sh", proxyconfig.Config.ShellExports, readWithSh},
		{"docker --env-file", proxyconfig.Config.DockerEnvFile, readAsDocker},
		{"kubectl --from-env-file", proxyconfig.Config.DockerEnvFile, readWithKubectl},
		{"compose", proxyconfig.Config.ComposeEnvFile, readAsCompose},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range passwordForms() {
				c := f.config("proxy.test:3128")
				text, err := r.render(c)
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(t.TempDir(), "env")
				writeFile(t, path, text)
				if got, want := r.read(t, path), environment(c); !maps.Equal(got, want) {
					t.Errorf("%s: got %q, want %q", f.name, got, want)
				}
			}
		})
	}
}

func readWithSh(t *testing.T, path string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", `. "$0"; exec env -0`, path)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return proxyVariables(string(out), "\x00")
}

// readAsDocker reads with the code of docker's command line.
func readAsDocker(t *testing.T, path string) map[string]string {
	t.Helper()
	lines, err := kvfile.Parse(path, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return proxyVariables(strings.Join(lines, "\x00"), "\x00")
}

// readAsCompose reads with the code of Docker Compose, version 2.
func readAsCompose(t *testing.T, path string) map[string]string {
	t.Helper()
	vars, err := dotenv.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return vars
}

func readWithKubectl(t *testing.T, path string) map[string]string {
	t.Helper()
	kubectl := filepath.Join(os.Getenv(bed.BinEnv), "kubectl")
	cmd := exec.CommandContext(t.Context(), kubectl, "create", "configmap", "x", "--from-env-file="+path, "--dry-run=client", "-o", "json")
	cmd.Env = []string{"KUBECONFIG=/dev/null", "HOME=" + t.TempDir()}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Data map[string]string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got.Data
}

// The java command reads the file of arguments, and says what its properties are.
func TestJavaReadsTheArguments(t *testing.T) {
	t.Parallel()
	for _, f := range passwordForms() {
		c := f.config("proxy.test:3128")
		c.NoProxy = "localhost,.svc"
		text, _, err := c.JVMArguments()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "args")
		writeFile(t, file, text)
		cmd := exec.CommandContext(t.Context(), "java", "-XX:TieredStopAtLevel=1", "@"+file, "-XshowSettings:properties", "-version")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{"http.proxyHost = proxy.test", "https.proxyPort = 3128", "http.proxyUser = us@er",
			"http.proxyPassword = " + f.password, "https.proxyPassword = " + f.password, "http.nonProxyHosts = localhost|*.localhost|*.svc"} {
			if !strings.Contains(string(out), "    "+want+"\n") {
				t.Errorf("%s: want %q in\n%s", f.name, want, out)
			}
		}
	}
}
