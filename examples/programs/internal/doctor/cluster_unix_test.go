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
	return newAnnotatedCluster(t, kubeconfig, map[string]any{"annotations": map[string]string{"causewayproject.github.io/proxy-url": "http://user:canary@proxy:3128"}}, nil)
}

// newAnnotatedCluster is newManagementCluster with the metadata of the Cluster and its Namespace.
func newAnnotatedCluster(t *testing.T, kubeconfig string, ofCluster, ofNamespace map[string]any) *cluster {
	t.Helper()
	ofCluster["namespace"], ofCluster["name"] = "org", "prod"
	objects := map[string]any{
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/org/clusters/prod": map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": ofCluster},
		"/api/v1/namespaces/org": map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": ofNamespace},
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

// The notes say what decides the route.
func TestSettingNotes(t *testing.T) {
	annotations := func(pairs ...string) map[string]any {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m["causewayproject.github.io/"+pairs[i]] = pairs[i+1]
		}
		return map[string]any{"annotations": m}
	}
	labelled := func(m map[string]any) map[string]any {
		m["labels"] = map[string]string{"causewayproject.github.io/tunnel": "true"}
		return m
	}
	const label = `The label causewayproject.github.io/tunnel is "true": the route is that of the Secret prod-tunnel-route.`
	for _, test := range []struct {
		name               string
		cluster, namespace map[string]any
		want, not          string
	}{
		{"nothing", annotations(), nil, "the provider's flags decide", "label"},
		{"the label", labelled(annotations()), nil, label, "flags decide"},
		{"the label, and a Namespace with a proxy", labelled(annotations()), annotations("proxy-url", "http://p:1", "no-proxy", "*"), label, "http://p:1"},
		{"the label, and a proxy of its own", labelled(annotations("proxy-url", "http://p:1")), nil, `proxy-url is "http://p:1", by an annotation of the Cluster.`, "is that of the Secret"},
		{"a gateway before the Namespace's proxy", annotations("gateway", "http://gw:1"), annotations("proxy-url", "http://p:1"), `gateway is "http://gw:1"`, "http://p:1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, _ := doctor(t, "--kubeconfig", newAnnotatedCluster(t, "", test.cluster, test.namespace).file(t), "--capi-cluster", "org/prod")
			if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, test.want) || strings.Contains(text, test.not) {
				t.Errorf("got\n%s\nwant %q in it, and not %q", out, test.want, test.not)
			}
		})
	}
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
