package connect_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// build is a kubeconfig for api, with an admin's certificate.
func build(t *testing.T, api *apiServer, route kubeconfig.Route) *clientcmdapi.Config {
	t.Helper()
	spec := kubetest.Spec(api.ca)
	spec.Route = route
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// namespaces lists namespaces through a new clientset.
func namespaces(config *rest.Config) error {
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := core.Namespaces().List(context.Background(), metav1.ListOptions{})
	if err == nil && (len(list.Items) != 1 || list.Items[0].Name != "default") {
		err = fmt.Errorf("got %d namespaces", len(list.Items))
	}
	return err
}

func TestClientRoutes(t *testing.T) {
	user := url.UserPassword("u", "p@ss:+%")
	proxyCA := pki.NewCAWith(nil, nil)
	proxyTLS := func() *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{proxyCA.Server("proxy.test", "127.0.0.1")}, ClientAuth: tls.RequestClientCert}
	}
	for _, test := range []struct {
		name   string
		scheme string
		user   *url.Userinfo
		tls    *tls.Config
		serve  func(*proxy) proxyFunc
		peers  []int
	}{
		{name: "http", scheme: "http", serve: serveConnect},
		{name: "http with a password", scheme: "http", user: user, serve: serveConnect},
		{name: "https", scheme: "https", user: user, tls: proxyTLS(), serve: serveConnect, peers: []int{0}},
		{name: "socks5", scheme: "socks5", serve: serveSOCKS},
		{name: "socks5h", scheme: "socks5h", serve: serveSOCKS},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := newAPIServer(t)
			p := newProxy(t, api, test.user, test.tls, test.serve)
			config := build(t, api, kubeconfig.Route{ProxyURL: p.url(test.scheme)})
			opts := &connect.Options{ProxyTLS: &tls.Config{RootCAs: proxyCA.Pool()}}
			c := kubetest.NewClient(t, config, opts)
			if err := namespaces(c.Config()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{apiAddress}, p.targets()); diff != "" {
				t.Errorf("what the proxy was asked for (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.peers, p.shown()); diff != "" {
				t.Errorf("client certificates shown to the proxy (-want +got):\n%s", diff)
			}
			if got := api.lastClient(); got != "kubernetes-admin" {
				t.Errorf("the API server saw the certificate of %q", got)
			}
			if got := api.lastHeader().Get("Proxy-Authorization"); got != "" {
				t.Error("the API server was sent the proxy's credentials")
			}
		})
	}
}

// The kubeconfig's CA is not a reason to trust the proxy.
func TestClientProxyCA(t *testing.T) {
	api := newAPIServer(t)
	config := &tls.Config{Certificates: []tls.Certificate{api.ca.Server("127.0.0.1", "127.0.0.1")}}
	p := newProxy(t, api, nil, config, serveConnect)
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{ProxyURL: p.url("https")}), nil)
	var cert *tls.CertificateVerificationError
	if err := namespaces(c.Config()); !errors.As(err, &cert) {
		t.Errorf("got %v, want a proxy that is not trusted", err)
	}
	if got := p.targets(); len(got) > 0 {
		t.Errorf("the proxy was asked for %v", got)
	}
}

func TestClientProxyRefuses(t *testing.T) {
	api := newAPIServer(t)
	p := newProxy(t, api, url.UserPassword("u", "right"), nil, serveConnect)
	config := build(t, api, kubeconfig.Route{ProxyURL: strings.Replace(p.url("http"), "right", "wr0ngSecret", 1)})
	err := namespaces(kubetest.NewClient(t, config, nil).Config())
	var de *dialer.Error
	if !errors.As(err, &de) || de.Status != http.StatusProxyAuthRequired {
		t.Fatalf("got %v, want the proxy's 407", err)
	}
	if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "wr0ngSecret") {
		t.Errorf("the error holds the password: %v", err)
	}
}

// TestMain has set HTTPS_PROXY for every test.
func TestClientIgnoresEnvironment(t *testing.T) {
	req, err := http.NewRequest(http.MethodGet, "https://"+apiAddress, nil)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := http.ProxyFromEnvironment(req); err != nil || u == nil || u.String() != kubetest.DeadProxy {
		t.Fatalf("the environment's proxy is %v, %v: this test would prove nothing", u, err)
	}
	api := newAPIServer(t)
	for name, opts := range map[string]*connect.Options{
		"Forward": {Forward: api.dialer()},
		"Dialer":  {Dialer: api.dialer()},
	} {
		c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), opts)
		if err := namespaces(c.Config()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		resp, err := c.HTTP().Get("https://" + apiAddress + "/version")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resp.Body.Close()
	}
}

func TestClientDialerReplacesRoute(t *testing.T) {
	api := newAPIServer(t)
	config := build(t, api, kubeconfig.Route{ProxyURL: kubetest.DeadProxy})
	config.Clusters["c1"].ProxyURL = "tunnel:whatever" // not even read
	c := kubetest.NewClient(t, config, &connect.Options{Dialer: api.dialer()})
	if err := namespaces(c.Config()); err != nil {
		t.Error(err)
	}
}

func TestClientForwardReachesProxy(t *testing.T) {
	api := newAPIServer(t)
	p := newProxy(t, api, nil, nil, serveConnect)
	var asked []string
	forward := dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		asked = append(asked, address)
		return new(net.Dialer).DialContext(ctx, network, p.addr)
	})
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{ProxyURL: "http://proxy.test"}), &connect.Options{Forward: forward})
	if err := namespaces(c.Config()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"proxy.test:80"}, asked); diff != "" {
		t.Errorf("what Forward was asked for (-want +got):\n%s", diff)
	}
}

// All that is made of a Client shares one connection.
func TestClientOneTransport(t *testing.T) {
	api := newAPIServer(t)
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Forward: api.dialer()})
	for range 20 {
		config := c.Config()
		config.QPS, config.UserAgent = -1, "test"
		if err := namespaces(config); err != nil {
			t.Fatal(err)
		}
		dyn, err := dynamic.NewForConfig(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		resource := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
		if _, err := dyn.Resource(resource).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := api.acceptedConns(); got != 1 {
		t.Errorf("got %d connections, want 1", got)
	}
	if diff := cmp.Diff(map[string]int{"HTTP/2.0": 40}, api.protos); diff != "" {
		t.Errorf("requests by protocol (-want +got):\n%s", diff)
	}
}

func TestClientBoundsHeader(t *testing.T) {
	api := newAPIServer(t)
	api.pods = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Path[len(podPath):])
		w.Header().Set("A", strings.Repeat("b", size))
	})
	for _, disabled := range []string{"", "1"} {
		t.Setenv("DISABLE_HTTP2", disabled)
		c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Forward: api.dialer()})
		for size, want := range map[string]bool{"1000000": true, "1100000": false} {
			resp, err := get(c.HTTP(), podPath+size)
			if (err == nil) != want {
				t.Errorf("DISABLE_HTTP2=%s: a header of %s bytes: got %v, want ok %v", disabled, size, err, want)
			}
			if err == nil {
				resp.Body.Close()
			}
		}
	}
}

func TestClientSwitchedProtocols(t *testing.T) {
	t.Setenv("DISABLE_HTTP2", "1")
	api := newAPIServer(t)
	api.pods = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		io.Copy(io.Discard, conn)
	})
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Forward: api.dialer()})
	resp, err := get(c.HTTP(), podPath+"a")
	if err == nil {
		resp.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "101 Switching Protocols, which nobody has asked for") {
		t.Errorf("got %v, want that the answer is refused", err)
	}
}

func TestClientConfigIsACopy(t *testing.T) {
	api := newAPIServer(t)
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Forward: api.dialer()})
	config := c.Config()
	config.Host, config.Transport = "https://192.0.2.1", nil
	if got := c.Config(); got.Host != "https://"+apiAddress || got.Transport == nil {
		t.Errorf("got %v after the first copy was changed", got)
	}
	// client-go's code that leaves the transport aside must not find another
	// way to the API server. It finds no CA.
	var cert *tls.CertificateVerificationError
	if err := namespaces(rest.AnonymousClientConfig(c.Config())); !errors.As(err, &cert) || api.acceptedConns() != 1 {
		t.Errorf("past the transport: got %v, %d connections; want a server that is not trusted, by the route", err, api.acceptedConns())
	}
}

func TestClientUsers(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	api := newAPIServer(t)
	p := newProxy(t, api, nil, nil, serveConnect)
	cert, key := api.ca.Issue("jane", nil)
	certFile, keyFile := file("tls.crt", pki.CertPEM(cert)), file("tls.key", pki.KeyPEM(key))
	for _, test := range []struct {
		name   string
		user   *clientcmdapi.AuthInfo
		client string
		header http.Header
	}{
		{"token", &clientcmdapi.AuthInfo{Token: "t"}, "", http.Header{"Authorization": {"Bearer t"}}},
		{"token file", &clientcmdapi.AuthInfo{TokenFile: file("token", []byte("f\n"))}, "", http.Header{"Authorization": {"Bearer f"}}},
		{"basic", &clientcmdapi.AuthInfo{Username: "u", Password: "p"}, "", http.Header{"Authorization": {"Basic dTpw"}}},
		{"files", &clientcmdapi.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile}, "jane", http.Header{}},
		{
			"impersonation", &clientcmdapi.AuthInfo{Token: "t", Impersonate: "jane", ImpersonateGroups: []string{"g"}}, "",
			http.Header{"Authorization": {"Bearer t"}, "Impersonate-User": {"jane"}, "Impersonate-Group": {"g"}},
		},
		{
			"exec plugin", &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: os.Args[0], ProvideClusterInfo: true,
				Env:             []clientcmdapi.ExecEnvVar{{Name: pluginVariable, Value: "1"}},
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}}, "",
			http.Header{"Authorization": {"Bearer proxy=" + p.url("http")}},
		},
		{
			"auth provider", &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "test"}}, "",
			http.Header{"Authorization": {"Bearer provided"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := build(t, api, kubeconfig.Route{ProxyURL: p.url("http")})
			config.AuthInfos["c1-admin"] = test.user
			config.Clusters["c1"].CertificateAuthorityData = nil
			config.Clusters["c1"].CertificateAuthority = file("ca.crt", api.ca.CertPEM())
			c := kubetest.NewClient(t, config, nil)
			if err := namespaces(c.Config()); err != nil {
				t.Fatal(err)
			}
			if got := api.lastClient(); got != test.client {
				t.Errorf("client certificate: got %q, want %q", got, test.client)
			}
			got := http.Header{}
			for name, values := range api.lastHeader() {
				if name == "Authorization" || strings.HasPrefix(name, "Impersonate") {
					got[name] = values
				}
			}
			if diff := cmp.Diff(test.header, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

type provider struct{}

func (provider) Login() error { return nil }
func (provider) WrapTransport(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer provided")
		return rt.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestClientServerVerification(t *testing.T) {
	api := newAPIServer(t)
	stranger := pki.NewCAWith(nil, nil)
	for _, test := range []struct {
		name   string
		change func(*clientcmdapi.Cluster)
		fails  bool
	}{
		{"as built", func(*clientcmdapi.Cluster) {}, false},
		{"another CA", func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = stranger.CertPEM() }, true},
		{"another name", func(c *clientcmdapi.Cluster) { c.TLSServerName = "other.test" }, true},
		{"a name of the certificate", func(c *clientcmdapi.Cluster) { c.TLSServerName = "127.0.0.1" }, false},
		{"not at all", func(c *clientcmdapi.Cluster) { c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := build(t, api, kubeconfig.Route{})
			test.change(config.Clusters["c1"])
			err := namespaces(kubetest.NewClient(t, config, &connect.Options{Forward: api.dialer()}).Config())
			var cert *tls.CertificateVerificationError
			if test.fails != errors.As(err, &cert) || !test.fails && err != nil {
				t.Errorf("got %v, want a certificate error: %t", err, test.fails)
			}
		})
	}
}

func TestNewClientInvalid(t *testing.T) {
	api := newAPIServer(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := func(change func(*clientcmdapi.Cluster)) func(*clientcmdapi.Config) {
		return func(c *clientcmdapi.Config) { change(c.Clusters["c1"]) }
	}
	server := func(s string) func(*clientcmdapi.Config) {
		return cluster(func(c *clientcmdapi.Cluster) { c.Server = s })
	}
	proxyURL := func(s string) func(*clientcmdapi.Config) {
		return cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = s })
	}
	for _, test := range []struct {
		name   string
		change func(*clientcmdapi.Config)
		opts   *connect.Options
		text   string
	}{
		{"server without scheme", server("api.test:6443"), nil, `clusters["c1"].server: want a URL with a scheme`},
		{"server is no URL", server("https://a b"), nil, `clusters["c1"].server: not a URL`},
		{"server without host", server("https://:6443"), nil, "no host"},
		{"server with user info", server("https://u:p@api.test"), nil, "user info"},
		{"proxy is no URL", proxyURL("http://a b"), nil, `clusters["c1"].proxy-url: not a URL`},
		{"proxy scheme", proxyURL("ftp://proxy"), nil, "not http, https, socks5 or"},
		{"proxy on a unix socket", proxyURL("http+unix:///run/proxy.sock"), nil, "not http, https, socks5 or"},
		{"long SOCKS password", proxyURL("socks5://u:" + strings.Repeat("p", 256) + "@proxy"), nil, "255"},
		{"Dialer and Forward", proxyURL(""), &connect.Options{Dialer: dialer.Direct{}, Forward: dialer.Direct{}}, "Options.Dialer"},
		{"Dialer and ProxyTLS", proxyURL(""), &connect.Options{Dialer: dialer.Direct{}, ProxyTLS: &tls.Config{}}, "Options.Dialer"},
		{"CA is none", cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = []byte("x") }), nil, "root certificates"},
		{"CA file is empty", cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData, c.CertificateAuthority = nil, empty }), nil, "the file is empty"},
		{"no CA file", cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData, c.CertificateAuthority = nil, empty+"x" }), nil, "no such file"},
		{"large client key", func(c *clientcmdapi.Config) {
			a := c.AuthInfos["c1-admin"]
			a.ClientCertificateData, a.ClientKeyData = pki.NewCA("large").LargeRSA()
		}, nil, "client-key-data: the private key is too large"},
		{"certificate without key", func(c *clientcmdapi.Config) { c.AuthInfos["c1-admin"].ClientKeyData = nil }, nil, "client-key-data"},
		{"long types of PEM blocks", func(c *clientcmdapi.Config) {
			c.AuthInfos["c1-admin"].ClientCertificateData = bytes.Repeat([]byte("-----BEGIN \x1b[2J\x07-----\n-----END \x1b[2J\x07-----\n"), 9000)
		}, nil, "client-certificate-data: tls: failed to find"},
		{"a CA with a long URI that is none", cluster(func(c *clientcmdapi.Cluster) {
			long, _ := api.ca.Issue("x", func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "http", Host: strings.Repeat("a", 1<<16)}} })
			c.CertificateAuthorityData = pki.CertPEM(&x509.Certificate{Raw: bytes.Replace(long.Raw, []byte("//a"), []byte("//\x1b"), 1)})
		}), nil, `clusters["c1"].certificate-authority-data: unable to load root certificates: failed to parse`},
		{"a long scheme", proxyURL(strings.Repeat("a", 1<<16) + "://proxy"), nil, `clusters["c1"].proxy-url: the scheme`},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := build(t, api, kubeconfig.Route{})
			test.change(config)
			c, err := connect.New(config, test.opts)
			if text := fmt.Sprint(err); len(text) > 4<<10 || strings.ContainsFunc(text, unicode.IsControl) {
				t.Errorf("got %d bytes, %.100q, want at most 4 KiB that print", len(text), text)
			}
			if c != nil || err == nil || !strings.Contains(err.Error(), test.text) || !strings.HasPrefix(err.Error(), "kubeconfig: ") {
				t.Errorf("got %v, %v, want an error with %q", c, err, test.text)
			}
		})
	}
}
