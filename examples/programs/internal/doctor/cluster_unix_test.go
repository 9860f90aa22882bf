//go:build unix

package doctor

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

// newManagementCluster has the Cluster org/prod, and its Secret with this kubeconfig.
func newManagementCluster(t *testing.T, kubeconfig string) *cluster {
	t.Helper()
	objects := map[string]any{
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/org/clusters/prod": map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
			"metadata": map[string]any{"annotations": map[string]string{"causewayproject.github.io/proxy-url": "http://user:canary@proxy:3128"}}},
		"/api/v1/namespaces/org": map[string]any{"apiVersion": "v1", "kind": "Namespace"},
		"/api/v1/namespaces/org/secrets/prod-kubeconfig": map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "org", "name": "prod-kubeconfig"},
			"data": map[string][]byte{"value": []byte(kubeconfig)},
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if objects[r.URL.Path] == nil {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		json.NewEncoder(w).Encode(objects[r.URL.Path])
	}))
	t.Cleanup(s.Close)
	c := &cluster{config: clientcmdapi.NewConfig()}
	c.config.Clusters["management"] = &clientcmdapi.Cluster{Server: s.URL}
	c.config.Contexts["management"] = &clientcmdapi.Context{Cluster: "management"}
	c.config.CurrentContext = "management"
	return c
}

// What a Secret names is not run, opened or timed; what one's own kubeconfig names is, and does
// not hold the command.
func TestLocalNames(t *testing.T) {
	for _, test := range []struct{ name, user, cluster, want string }{
		{"a program", `exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: ["MARK"], interactiveMode: Never}`, "", `users["u"].exec: names a program`},
		{"a token's file", "tokenFile: FIFO", "", `users["u"].tokenFile: names a file`},
		{"a token's file that has no end", "tokenFile: /dev/zero", "", `users["u"].tokenFile: names a file`},
		{"a key's file", "client-certificate: FIFO, client-key: FIFO", "", `users["u"].client-certificate: names a file`},
		{"a CA's file", "", "certificate-authority: FIFO", `clusters["c"].certificate-authority: names a file`},
		{"a CA's file that has no end", "", "certificate-authority: /dev/zero", `clusters["c"].certificate-authority: names a file`},
		{"a proxy's CA", "", "proxy-url: https://127.0.0.1:1, extensions: [{name: causewayproject.github.io/route, extension: {apiVersion: kubeconfig.causewayproject.github.io/v1, kind: Route, proxyTLS: {certificateAuthority: FIFO}}}]",
			`clusters["c"].extensions["causewayproject.github.io/route"].proxyTLS.certificateAuthority: names a file`},
	} {
		t.Run(test.name, func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "mark")
			text := strings.NewReplacer("MARK", mark, "FIFO", unopenedFIFO(t)).Replace("current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
				"users: [{name: u, user: {" + test.user + "}}]\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', " + test.cluster + "}}]\n")
			c := newManagementCluster(t, text)
			out, err := doctor(t, "--kubeconfig", c.file(t), "--capi-cluster", "org/prod")
			if !errors.Is(err, cli.ErrFailed) {
				t.Errorf("got %v, want cli.ErrFailed", err)
			}
			if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, test.want) || !strings.Contains(text, "FAIL config") {
				t.Errorf("got\n%s\nwant %q in it", out, test.want)
			}
			if !strings.Contains(out, `proxy-url is "http://proxy:3128", by an annotation of the Cluster.`) || strings.Contains(out, "canary") {
				t.Errorf("got\n%s\nwant the annotation without its password", out)
			}
			if _, err := os.Stat(mark); err == nil {
				t.Error("the program was run")
			}
		})
	}
}

// unopenedFIFO returns a named pipe that nobody may open: a reader would wait for a writer
// for ever. The test fails at its end if one waits.
func unopenedFIFO(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		switch fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0); {
		case err == nil:
			syscall.Close(fd)
			t.Error("the named pipe was opened")
		case !errors.Is(err, syscall.ENXIO):
			t.Error(err)
		}
	})
	return path
}
