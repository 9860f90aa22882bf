package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// The quickstart program does with a real cluster and proxy what it does with
// its stand-ins.
func TestQuickstart(t *testing.T) {
	b := sharedBed(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "quickstart")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/quickstart")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, r := range routes(b) {
		t.Run(r.name, func(t *testing.T) {
			before, err := r.lines(r.client)
			if err != nil {
				t.Fatal(err)
			}
			// A kubeconfig without a route, and without the proxy's authority.
			direct := route{proxy: &url.URL{}}
			written := filepath.Join(t.TempDir(), "written")
			argv := []string{program, "-kubeconfig", writeKubeconfig(t, b, direct), "-proxy", r.proxy.String(), "-o", written}
			if len(r.proxyCA) > 0 {
				ca := filepath.Join(t.TempDir(), "proxy-ca.pem")
				if err := os.WriteFile(ca, r.proxyCA, 0o600); err != nil {
					t.Fatal(err)
				}
				argv = append(argv, "-proxy-ca", ca)
			}
			out, err := b.Network.Client.Run(t.Context(), bed.Command{Argv: argv, Env: []string{"HTTPS_PROXY=http://127.0.0.1:1"}})
			t.Logf("\n%s", out)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				bed.KubeVersion() + ", readyz ok", "namespaces, watch saw",
				"no proxy", "network is unreachable",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("want %q in the output", want)
				}
			}
			if asks := r.proxy.User != nil; strings.Contains(out, "wrong password  ") != asks {
				t.Errorf("a try with a wrong password: got %t, want %t", !asks, asks)
			}
			if containsPassword(out, r.proxy.User) {
				t.Error("the output shows the password")
			}
			r.waitLogged(t, "quickstart", len(before), 1, r.client)
			if r.proxyCA != nil {
				return // kubectl needs the proxy's authority in the kubeconfig
			}
			if _, err := b.Network.Client.Run(t.Context(), b.Kubectl(written, "get", "namespaces")); err != nil {
				t.Errorf("kubectl with what -o wrote: %v", err)
			}
		})
	}
}

// containsPassword tells whether text has the password, as it is or as a URL
// has it.
func containsPassword(text string, user *url.Userinfo) bool {
	password, ok := user.Password()
	_, escaped, _ := strings.Cut(user.String(), ":")
	return ok && (strings.Contains(text, password) || strings.Contains(text, escaped))
}
