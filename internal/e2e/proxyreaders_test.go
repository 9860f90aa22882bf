package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/proxyconfig"
)

// proxyReader is a program that uses a rendering to ask for both targets, or for
// the first alone. FILE in args is the rendering.
type proxyReader struct {
	name   string
	args   []string
	render func(proxyconfig.Config) (string, error)
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
		sh("net/http", "env", bed.RoleEnv+"=get", "GORACE=atexit_sleep_ms=0", self, farTarget, farTargetTLS),
	}
}

// getRole asks for its arguments by the environment, as Go programs do.
func getRole(ctx context.Context, _ io.Reader, out io.Writer) error {
	for _, target := range os.Args[1:] {
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
			for _, f := range passwordForms() {
				proxy := newPasswordProxy(t) // nobody comes late to the next one's
				text, err := r.render(f.config(proxy.address()))
				if err != nil {
					t.Fatal(err)
				}
				out := r.run(t, text)
				want := []string{"far.test us@er " + f.password, "far.test:443 us@er " + f.password}
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
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// refusals are the forms that a rendering refuses, each with the field that the
// error names.
type refusals map[string]string

// rendered returns the rendering of a form, and false if it was refused as it has
// to be.
func (r refusals) rendered(t *testing.T, f passwordForm, c proxyconfig.Config, render func(proxyconfig.Config) (string, error)) (string, bool) {
	t.Helper()
	text, err := render(c)
	want := r[f.name]
	var field *proxyconfig.FieldError
	switch {
	case want == "" && err != nil:
		t.Fatalf("%s: %v", f.name, err)
	case want != "" && (!errors.As(err, &field) || field.Field != want || text != "" || strings.Contains(err.Error(), f.inURL)):
		t.Errorf("%s: got %d bytes and error %v, want one for %s", f.name, len(text), err, want)
	}
	return text, want == ""
}

// The environment that the formats' own readers make of a rendering is what was
// configured, or the rendering is refused.
func TestReadersOfEnvironments(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name    string
		render  func(proxyconfig.Config) (string, error)
		refuses refusals
		read    func(t *testing.T, texts []string) []map[string]string
	}{
		{"bash", proxyconfig.Config.ShellExports, nil, readWithShell("bash")},
		{"dash", proxyconfig.Config.ShellExports, nil, readWithShell("dash")},
		{"docker --env-file", proxyconfig.Config.DockerEnvFile, refusals{longList: "NoProxy"}, readWithDocker("env", "--env-file", "FILE")},
		{"docker config.json", proxyconfig.Config.DockerConfig, nil, readWithDocker("config.json")},
		{"kubectl --from-env-file", proxyconfig.Config.DockerEnvFile, refusals{longList: "NoProxy"}, readWithKubectl},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			var forms []passwordForm
			var texts []string
			for _, f := range append(passwordForms(), listForms()...) {
				if text, ok := r.refuses.rendered(t, f, f.config("proxy.test:3128"), r.render); ok {
					forms, texts = append(forms, f), append(texts, text)
				}
			}
			for i, got := range r.read(t, texts) {
				want := environment(forms[i].config("proxy.test:3128"))
				if !maps.EqualFunc(got, want, sameURL) {
					t.Errorf("%s: got %q, want %q", forms[i].name, got, want)
				}
			}
		})
	}
}

// sameURL reports whether two values are equal but for how they write a single
// quote of a password. No list has one.
func sameURL(a, b string) bool {
	return strings.ReplaceAll(a, "%27", "'") == strings.ReplaceAll(b, "%27", "'")
}

// readEach reads the texts one by one, each from a file.
func readEach(t *testing.T, texts []string, read func(path string) map[string]string) (all []map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range texts {
		writeFile(t, path, text)
		all = append(all, read(path))
	}
	return all
}

// readerOutput runs a program that reads a rendering.
func readerOutput(t *testing.T, env []string, argv ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = append(out, exit.Stderr...)
		}
		t.Fatalf("%s: %v\n%s", argv[0], err, out)
	}
	return out
}

func readWithShell(shell string) func(*testing.T, []string) []map[string]string {
	return func(t *testing.T, texts []string) []map[string]string {
		return readEach(t, texts, func(path string) map[string]string {
			return proxyVariables(string(readerOutput(t, nil, shell, "-euc", `. "$0"; exec env -0`, path)), "\x00")
		})
	}
}

func readWithKubectl(t *testing.T, texts []string) []map[string]string {
	kubectl := filepath.Join(os.Getenv(bed.BinEnv), "kubectl")
	return readEach(t, texts, func(path string) map[string]string {
		out := readerOutput(t, []string{"KUBECONFIG=/dev/null"}, kubectl, "create", "configmap", "x", "--from-env-file="+path, "--dry-run=client", "-o", "json")
		var got struct{ Data map[string]string }
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		return got.Data
	})
}

// newDockerDaemon returns the socket of a docker daemon that starts nothing, and
// the environments of the containers that it is asked for.
func newDockerDaemon(t *testing.T) (socket string, containers <-chan []string) {
	t.Helper()
	socket = filepath.Join(sharedDir(t), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan []string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.44") })
	mux.HandleFunc("POST /{version}/containers/create", func(w http.ResponseWriter, r *http.Request) {
		var container struct{ Env []string }
		if err := json.NewDecoder(r.Body).Decode(&container); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked <- container.Env
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"Id": "x"}`)
	})
	mux.HandleFunc("POST /{version}/containers/x/start", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	s.Start()
	t.Cleanup(s.Close)
	return socket, asked
}

// readWithDocker has docker run a container by the file of that name, or with an
// argument that names it.
func readWithDocker(name string, args ...string) func(*testing.T, []string) []map[string]string {
	return func(t *testing.T, texts []string) []map[string]string {
		socket, containers := newDockerDaemon(t)
		path := filepath.Join(t.TempDir(), name)
		var all []map[string]string
		for _, text := range texts {
			writeFile(t, path, text)
			argv := []string{"docker", "--config", filepath.Dir(path), "--host", "unix://" + socket, "run", "--detach"}
			for _, arg := range args {
				argv = append(argv, strings.ReplaceAll(arg, "FILE", path))
			}
			readerOutput(t, nil, append(argv, "image")...)
			all = append(all, proxyVariables(strings.Join(<-containers, "\x00"), "\x00"))
		}
		return all
	}
}

// The java command reads the file of arguments, and says what its properties are.
// In the locale C it reads nothing but ASCII.
func TestJavaReadsTheArguments(t *testing.T) {
	t.Parallel()
	arguments := func(c proxyconfig.Config) (string, error) {
		text, _, err := c.JVMArguments()
		return text, err
	}
	for _, f := range passwordForms() {
		c := f.config("proxy.test:3128")
		c.NoProxy = "localhost,.svc"
		text, ok := refusals{notASCII: "HTTPProxy"}.rendered(t, f, c, arguments)
		if !ok {
			continue
		}
		file := filepath.Join(t.TempDir(), "args")
		writeFile(t, file, text)
		cmd := exec.CommandContext(t.Context(), "java", "-XX:TieredStopAtLevel=1", "@"+file, "-XshowSettings:properties", "-version")
		cmd.Env = append(os.Environ(), "LC_ALL=C")
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
