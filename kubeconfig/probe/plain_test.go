package probe_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// clientGo asks for /readyz as a program that uses client-go does.
func clientGo(t *testing.T, config *clientcmdapi.Config) error {
	t.Helper()
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return err
	}
	// With a Dial function, client-go caches nothing that outlives the test.
	c.Dial = (&net.Dialer{}).DialContext
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(c.Host, "/")+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return nil
}

func setRoute(t *testing.T, config *clientcmdapi.Config, extension map[string]any) {
	t.Helper()
	setExtension(t, config.Clusters["c1"], extension)
}

func setExtension(t *testing.T, c *clientcmdapi.Cluster, extension map[string]any) {
	t.Helper()
	extension["apiVersion"], extension["kind"] = kubeconfig.ExtensionAPIVersion, kubeconfig.ExtensionKind
	raw, err := json.Marshal(extension)
	if err != nil {
		t.Fatal(err)
	}
	c.Extensions = map[string]runtime.Object{kubeconfig.ExtensionName: &runtime.Unknown{Raw: raw, ContentType: "application/json"}}
}

// What the probe says of a kubeconfig is what client-go makes of it.
func TestPlain(t *testing.T) {
	api := newProbed(t, nil)
	proxyCA := pki.NewCAWith(nil, nil)
	serve := func(ca *pki.CA, handle proxyFunc, names ...string) string {
		var config *tls.Config
		if ca != nil {
			config = &tls.Config{Certificates: []tls.Certificate{ca.Server(names...)}}
		}
		return script(t, config, handle)
	}
	relay := (&proxytest.HTTP{}).Handle
	login := serve(nil, (&proxytest.HTTP{Username: "u", Password: "p"}).Handle)
	foreign, same := serve(proxyCA, relay, "127.0.0.1"), serve(api.ca, relay, "127.0.0.1")
	named := serve(api.ca, relay, "api.test")
	answers := func(text string) string {
		return serve(nil, func(_ context.Context, conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				io.WriteString(conn, text)
			}
		})
	}
	wantsCert := script(t, &tls.Config{
		Certificates: []tls.Certificate{api.ca.Server("127.0.0.1")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: proxyCA.Pool(),
	}, relay)
	c := func(change func(*clientcmdapi.Cluster)) func(*testing.T, *clientcmdapi.Config) {
		return func(_ *testing.T, config *clientcmdapi.Config) { change(config.Clusters["c1"]) }
	}
	via := func(proxy string) func(*testing.T, *clientcmdapi.Config) {
		return c(func(c *clientcmdapi.Cluster) { c.ProxyURL = proxy })
	}
	for _, test := range []struct {
		name   string
		change func(*testing.T, *clientcmdapi.Config)
		phase  probe.Phase // that fails; empty for none
		ours   bool        // whether a Client of package connect gets there
	}{
		{"direct", via(""), "", true},
		{"http", via("http://" + login), probe.PhaseProxyAuth, false},
		{"http with a login", via("http://u:p@" + login), "", true},
		{"socks5", via("socks5://u:p@" + serve(nil, (&proxytest.SOCKS5{Username: "u", Password: "p"}).Handle)), "", true},
		{"socks5h", via("socks5h://u:p@" + serve(nil, (&proxytest.SOCKS5{Username: "u", Password: "p"}).Handle)), probe.PhaseConfig, true},
		{"https of the cluster's CA", via("https://" + same), "", false},
		{"https of another CA", via("https://" + foreign), probe.PhaseProxyTLS, false},
		{"https of another CA, in the extension", func(t *testing.T, config *clientcmdapi.Config) {
			config.Clusters["c1"].ProxyURL = "https://" + foreign
			setRoute(t, config, map[string]any{"proxyTLS": map[string]any{"certificateAuthorityData": proxyCA.CertPEM()}})
		}, probe.PhaseProxyTLS, true},
		{"https and tls-server-name", c(func(c *clientcmdapi.Cluster) { c.ProxyURL, c.TLSServerName = "https://"+same, "api.test" }), probe.PhaseProxyTLS, false},
		{"https by tls-server-name", c(func(c *clientcmdapi.Cluster) { c.ProxyURL, c.TLSServerName = "https://"+named, "api.test" }), "", false},
		{"https that wants another certificate", via("https://" + wantsCert), probe.PhaseConnect, false},
		{"more endpoints", func(t *testing.T, config *clientcmdapi.Config) {
			setRoute(t, config, map[string]any{"endpoints": []string{config.Clusters["c1"].Server[len("https://"):]}})
			config.Clusters["c1"].Server = "https://" + closedPort(t)
		}, probe.PhaseTCP, true},
		{"an extension of a newer version", func(t *testing.T, config *clientcmdapi.Config) {
			setRoute(t, config, map[string]any{"new": true})
		}, "", false},
		{"a proxy that says 204", via("http://" + answers("HTTP/1.1 204 No Content\r\n\r\n")), probe.PhaseTLS, false},
		{"the environment's proxy", c(func(c *clientcmdapi.Cluster) { c.Server = "https://192.0.2.1:6443" }), probe.PhaseTCP, false},
		{"not ready", func(t *testing.T, config *clientcmdapi.Config) {
			sick := startProbed(t, &probed{ca: api.ca, answers: map[string]http.HandlerFunc{"/readyz": reply(500, "text/plain", "[-]etcd failed\n")}}, "api.test")
			config.Clusters["c1"].Server = "https://" + sick.Listener.Addr().String()
		}, probe.PhaseReady, false},
		{"another cluster's CA", c(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = proxyCA.CertPEM() }), probe.PhaseTLS, false},
		{"bad credentials", func(_ *testing.T, config *clientcmdapi.Config) {
			config.AuthInfos["c1-admin"] = &clientcmdapi.AuthInfo{Token: "bad"}
		}, probe.PhaseAuth, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := api.config(t)
			test.change(t, config)
			before := config.DeepCopy()
			r := probe.Options{Plain: true}.Run(probeContext(t), config)
			if err := clientGo(t, config); (err == nil) != r.OK() {
				t.Errorf("client-go: %v; the probe: %v", err, r.Err())
			}
			switch {
			case test.phase == "" && !r.OK():
				t.Error(r.Err())
			case test.phase != "":
				checkFailure(t, r, failure{phase: test.phase})
			}
			if got, want := toText(t, config), toText(t, before); got != want {
				t.Error("the kubeconfig was changed")
			}
			if test.name == "the environment's proxy" {
				return // our own go directly, and there is nothing
			}
			if own := probe.Run(probeContext(t), config); own.OK() != test.ours {
				t.Errorf("by our own: got %v, want ok %v", own.Err(), test.ours)
			}
		})
	}
}

func toText(t *testing.T, config *clientcmdapi.Config) string {
	t.Helper()
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A probe that hangs names the phase that it hangs in, within its time.
func TestPlainHangs(t *testing.T) {
	hang := script(t, nil, func(ctx context.Context, _ net.Conn) { <-ctx.Done() })
	config := newProbed(t, nil).config(t)
	config.Clusters["c1"].ProxyURL = (&url.URL{Scheme: "http", Host: hang, User: url.UserPassword("u", kubetest.Canary)}).String()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r := probe.Options{Plain: true}.Run(ctx, config)
	checkFailure(t, r, failure{probe.PhaseConnect, "the proxy does not answer", ""})
	kubetest.CheckLeaks(t, "report", r)
}

// A controller probes hundreds of clusters every few seconds: nothing of a probe may stay.
func TestPlainHoldsNoMemory(t *testing.T) {
	const probes = 100
	config := newProbed(t, nil).config(t)
	heap := func() int {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.GC() // what the first one finalized
		goruntime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	run := func() {
		for range probes {
			if r := (probe.Options{Plain: true}).Run(probeContext(t), config); !r.OK() {
				t.Fatal(r.Err())
			}
		}
	}
	run()
	before := heap()
	run()
	if held := (heap() - before) / probes; held > 20<<10 {
		t.Errorf("a probe that is over holds %d bytes", held)
	}
}

// A client certificate for the proxy is in a Secret.
func TestReadSecret(t *testing.T) {
	api, proxyCA := newProbed(t, nil), pki.NewCAWith(nil, nil)
	proxy := script(t, &tls.Config{
		Certificates: []tls.Certificate{proxyCA.Server("127.0.0.1")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: proxyCA.Pool(),
	}, (&proxytest.HTTP{}).Handle)
	config := api.config(t)
	config.Clusters["c1"].ProxyURL = "https://" + proxy
	setRoute(t, config, map[string]any{"proxyTLS": map[string]any{"secret": map[string]any{"namespace": "n", "name": "proxy"}}})
	cert, key := pki.PEM(proxyCA.Client("me"))
	read := func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if namespace+"/"+name != "n/proxy" {
			return nil, fmt.Errorf("read %s/%s", namespace, name)
		}
		return map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": proxyCA.CertPEM()}, nil
	}
	if r := (probe.Options{ReadSecret: read}).Run(probeContext(t), config); !r.OK() {
		t.Error(r.Err())
	}
	checkFailure(t, probe.Run(probeContext(t), config), failure{probe.PhaseConfig, "in a Secret, which is not read here", "in proxyTLS in place of secret"})
}
