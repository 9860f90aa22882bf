package e2e

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
	"github.com/causewayproject/causeway/tunnel"
)

// duration returns what the environment variable says, or else d: some tests
// show more when they take longer than CI's patience.
func duration(t *testing.T, name string, d time.Duration) time.Duration {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return d
}

const (
	apiTarget = "kubernetes.default.svc:443"
	apiFront  = "127.0.0.1:6443"
)

// kubeTunnel starts a server in the hub's namespace and an agent beside the API
// server, whose way out is the office proxy.
func kubeTunnel(t *testing.T, b *bed.Bed) *hub {
	t.Helper()
	address := net.JoinHostPort(bed.HubIP, tunnelPort)
	h := newHub(t, &tunnel.Server{}, listen(t, b.Network.Hub, address))
	startAgent(t, b.Network.API, agentInput{
		Invitation: h.invite(address),
		Proxy:      []hop{{URL: b.Office.URL().String()}},
		Aliases:    map[string]string{apiTarget: b.Kube.Address()},
	})
	t.Logf("%+v", h.session(20*time.Second))
	return h
}

func tunnelKubeconfig(t testing.TB, b *bed.Bed, endpoint kubeconfig.Endpoint) []byte {
	t.Helper()
	config, err := kubeconfig.Spec{
		Name:          "bed",
		Endpoint:      endpoint,
		TLSServerName: "kubernetes.default.svc",
		CA:            b.Kube.CA.CertPEM(),
		Credentials:   kubeconfig.Credentials{CAKey: b.Kube.CA.KeyPEM()},
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := kubeconfig.Secret("bed", "default", config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return secret.Data[kubeconfig.SecretKey]
}

// kubectl, unmodified, works through the tunnel, and a watch that was idle for
// longer than any keepalive still tells what happens.
func TestTunnelKubectl(t *testing.T) {
	b := sharedBed(t)
	h := kubeTunnel(t, b)
	h.front(b.Network.Hub, apiFront, apiTarget)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, tunnelKubeconfig(t, b, kubeconfig.Endpoint{Host: "127.0.0.1", Port: 6443}), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(stdin string, args ...string) string {
		t.Helper()
		c := b.Kubectl(path, args...)
		c.Stdin = strings.NewReader(stdin)
		out, err := b.Network.Hub.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := run("", "get", "namespaces", "-o", "name"); !strings.Contains(out, "namespace/default\n") {
		t.Errorf("get namespaces: got %q, want namespace/default in it", out)
	}
	run("", "create", "namespace", "tunnel")
	run("", "create", "configmap", "before", "-n", "tunnel")
	if out := run("", "get", "--raw", "/openapi/v2"); len(out) < 1<<20 || !strings.HasSuffix(strings.TrimSpace(out), "}") {
		t.Errorf("the API's description has %d bytes and ends in %q", len(out), out[max(0, len(out)-10):])
	}
	w, err := b.Network.Hub.Start(t.Context(), b.Kubectl(path, "get", "configmaps", "-n", "tunnel", "--watch", "-o", "name"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := w.WaitFor(t.Context(), "configmap/before\n"); err != nil {
		t.Fatal(err)
	}
	idle := duration(t, "CAUSEWAY_E2E_IDLE", 15*time.Second)
	wait(t, idle)
	began := time.Now()
	if out := run(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"during"}}`, "apply", "-n", "tunnel", "-f", "-"); out != "configmap/during created\n" {
		t.Errorf("apply: got %q", out)
	}
	if err := w.WaitFor(t.Context(), "configmap/during\n"); err != nil {
		t.Fatal(err)
	}
	t.Logf("after %v without an event the watch tells of one, %v after apply began", idle, time.Since(began))
	wantOneSession(t, h, 6)
}

// wait lets time pass.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// wantOneSession wants all to have gone through one session.
func wantOneSession(t *testing.T, h *hub, dials uint64) {
	t.Helper()
	sessions := h.Status().Clusters[0].Sessions
	t.Logf("%+v", sessions)
	if len(sessions) != 1 || len(h.connected) > 0 || len(h.disconnected) > 0 {
		t.Fatalf("got %d sessions, %d more came and %d went: want the first to live on", len(sessions), len(h.connected), len(h.disconnected))
	}
	if sessions[0].Dials < dials {
		t.Errorf("got %d dials through the session, want %d", sessions[0].Dials, dials)
	}
}

// Our own client takes the tunnel as its Dialer: no listener, and the target by
// the name that it has in the cluster.
func TestTunnelClient(t *testing.T) {
	b := sharedBed(t)
	h := kubeTunnel(t, b)
	config, err := clientcmd.Load(tunnelKubeconfig(t, b, kubeconfig.Endpoint{Host: "kubernetes.default.svc", Port: 443}))
	if err != nil {
		t.Fatal(err)
	}
	client, err := connect.New(config, &connect.Options{Dialer: h.Dialer(cluster)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	clientset, err := kubernetes.NewForConfig(client.Config())
	if err != nil {
		t.Fatal(err)
	}
	var got clientAnswer
	if err := use(t.Context(), clientset, "tunnel-client", &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", got)
	if !slices.Contains(got.Namespaces, "tunnel-client") || !slices.Contains(got.Watched, "two") || got.User != "kubernetes-admin" {
		t.Errorf("got %+v", got)
	}
	wantOneSession(t, h, 1)
}
