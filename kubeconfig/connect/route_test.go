package connect_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// The header goes to the proxy, and not to the API server.
func TestRouteHeader(t *testing.T) {
	api := newAPIServer(t)
	var got http.Header
	p := newProxy(t, api, nil, nil, func(p *proxy) proxyFunc {
		return (&proxytest.HTTP{Dial: api.dial, Log: func(r proxytest.Request) { got = r.Header }}).Handle
	})
	header := map[string][]string{"X-Tenant": {"a", "b"}, "Proxy-Authorization": {"Custom s3cret"}}
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{ProxyURL: p.url("http"), Header: header}), nil)
	if err := namespaces(c.Config()); err != nil {
		t.Fatal(err)
	}
	for name, want := range header {
		if diff := cmp.Diff(want, got.Values(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if seen := api.lastHeader().Values(name); len(seen) > 0 {
			t.Errorf("the API server was sent %s", name)
		}
	}
}

// A Proxy-Authorization that is refused is not sent again.
func TestRouteHeaderRefused(t *testing.T) {
	api := newAPIServer(t)
	p := newProxy(t, api, nil, nil, func(*proxy) proxyFunc { return refuse })
	config := build(t, api, kubeconfig.Route{ProxyURL: p.url("http"), Header: map[string][]string{"Proxy-Authorization": {"Custom s3cret"}}})
	err := namespaces(kubetest.NewClient(t, config, nil).Config())
	if err == nil || !strings.Contains(err.Error(), "407") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v, want the 407", err)
	}
}

func TestRouteNoProxy(t *testing.T) {
	for _, test := range []struct {
		list   string
		direct bool
	}{
		{"api.test", true},
		{"other.test,.test", true},
		{"other.test", false},
		{"api.test:443", false},
		{"10.0.0.0/8", false},
	} {
		api := newAPIServer(t)
		p := newProxy(t, api, nil, nil, serveConnect)
		forward := hosts{apiAddress: api.addr(), "proxy.test:80": p.addr}
		config := build(t, api, kubeconfig.Route{ProxyURL: "http://proxy.test", NoProxy: test.list})
		if err := namespaces(kubetest.NewClient(t, config, &connect.Options{Forward: forward}).Config()); err != nil {
			t.Errorf("%s: %v", test.list, err)
		}
		if got := len(p.targets()) == 0; got != test.direct {
			t.Errorf("%s: got direct %t, want %t", test.list, got, test.direct)
		}
	}
}

// Nothing is implied by a list: not that an API server on loopback, as the
// proxy sees it, is on this machine.
func TestRouteNoProxyLoopback(t *testing.T) {
	api := newAPIServer(t)
	n := hosts{"127.0.0.1:6443": api.addr()}
	p := newProxyOver(t, n.DialContext, serveConnect)
	config := build(t, api, kubeconfig.Route{ProxyURL: p.url("http"), NoProxy: "other.test"})
	config.Clusters["c1"].Server = "https://127.0.0.1:6443"
	if err := namespaces(kubetest.NewClient(t, config, nil).Config()); err != nil || len(p.targets()) != 1 {
		t.Errorf("got %v, %v, want one connection through the proxy", err, p.targets())
	}
}

// mutual is an https proxy with a CA of its own that asks for a certificate.
func mutual(t *testing.T, api *apiServer) (*proxy, *pki.CA) {
	ca := pki.NewCAWith(nil, nil)
	return newProxy(t, api, nil, &tls.Config{
		Certificates: []tls.Certificate{ca.Server("proxy.test", "127.0.0.1")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	}, serveConnect), ca
}

func TestRouteProxyTLS(t *testing.T) {
	api := newAPIServer(t)
	p, ca := mutual(t, api)
	cert, key := ca.Issue("us", nil)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "ca.crt"), ca.CertPEM())
	writeFile(t, filepath.Join(dir, "tls.crt"), pki.CertPEM(cert))
	writeFile(t, filepath.Join(dir, "tls.key"), pki.KeyPEM(key))
	secret := map[string][]byte{"ca.crt": ca.CertPEM(), "tls.crt": pki.CertPEM(cert), "tls.key": pki.KeyPEM(key)}
	stranger := pki.NewCAWith(nil, nil)
	ref := &kubeconfig.SecretRef{Namespace: "ns", Name: "client"}
	opts := &connect.Options{ReadSecret: func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if namespace != "ns" || name != "client" {
			t.Errorf("asked for %s/%s", namespace, name)
		}
		return secret, nil
	}}
	pair := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
	for _, test := range []struct {
		name  string
		tls   kubeconfig.ProxyTLS
		opts  *connect.Options
		fails bool
	}{
		{"files beside the kubeconfig", kubeconfig.ProxyTLS{CAFile: "ca.crt", CertificateFile: "tls.crt", KeyFile: "tls.key"}, nil, false},
		{"files", kubeconfig.ProxyTLS{CAFile: filepath.Join(dir, "ca.crt"), CertificateFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}, nil, false},
		{"inline CA", kubeconfig.ProxyTLS{CA: ca.CertPEM(), CertificateFile: "tls.crt", KeyFile: "tls.key"}, nil, false},
		{"server name", kubeconfig.ProxyTLS{CA: ca.CertPEM(), ServerName: "proxy.test", CertificateFile: "tls.crt", KeyFile: "tls.key"}, nil, false},
		{"Secret", kubeconfig.ProxyTLS{Secret: ref}, opts, false},
		{"Secret and inline CA", kubeconfig.ProxyTLS{CA: ca.CertPEM(), Secret: ref}, opts, false},
		{"another CA", kubeconfig.ProxyTLS{CA: stranger.CertPEM(), Secret: ref}, opts, true},
		{"another server name", kubeconfig.ProxyTLS{ServerName: "other.test", Secret: ref}, opts, true},
		{"no CA", kubeconfig.ProxyTLS{CertificateFile: "tls.crt", KeyFile: "tls.key"}, nil, true},
		{"no certificate", kubeconfig.ProxyTLS{CA: ca.CertPEM()}, nil, true},
		{
			"Options.ProxyTLS wins", kubeconfig.ProxyTLS{CAFile: "not read", Secret: ref},
			&connect.Options{ProxyTLS: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}}}, false,
		},
		{
			"Options.Dialer wins", kubeconfig.ProxyTLS{CAFile: "not read", Secret: ref},
			&connect.Options{Dialer: api.dialer()}, false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := build(t, api, kubeconfig.Route{ProxyURL: p.url("https"), ProxyTLS: &test.tls})
			config.Clusters["c1"].LocationOfOrigin = filepath.Join(dir, "config")
			err := namespaces(kubetest.NewClient(t, config, test.opts).Config())
			if test.fails != (err != nil) {
				t.Errorf("got %v, want an error: %t", err, test.fails)
			}
		})
	}
}

// The Secret is read for each connection.
func TestRouteProxySecretChanges(t *testing.T) {
	api := newAPIServer(t)
	p, ca := mutual(t, api)
	cert, key := ca.Issue("us", nil)
	var secret map[string][]byte
	var failure error
	config := build(t, api, kubeconfig.Route{ProxyURL: p.url("https"), ProxyTLS: &kubeconfig.ProxyTLS{
		CA: ca.CertPEM(), Secret: &kubeconfig.SecretRef{Namespace: "ns", Name: "client"},
	}})
	c := kubetest.NewClient(t, config, &connect.Options{
		ReadSecret: func(context.Context, string, string) (map[string][]byte, error) { return secret, failure },
	})
	const field = `clusters["c1"].extensions["causewayproject.github.io/route"].proxyTLS.secret`
	check := func(what string, wantErr error) {
		t.Helper()
		err := namespaces(c.Config())
		var fe *kubeconfig.FieldError
		if !errors.As(err, &fe) || fe.Field != field || wantErr != nil && !errors.Is(err, wantErr) {
			t.Errorf("%s: got %v, want a FieldError of %s", what, err, field)
		}
	}
	failure = errors.New("forbidden")
	check("not readable", failure)
	failure, secret = nil, map[string][]byte{"tls.crt": pki.CertPEM(cert), "tls.key": []byte("s3cret")}
	check("no key", nil)
	secret["tls.key"] = pki.KeyPEM(key)
	for key, proxy := range map[string]string{"proxy-url": "https://proxy.test:1", "gateway": strings.Replace(p.url("https"), "https:", "http:", 1)} {
		secret[key] = []byte(proxy)
		check("for another proxy", nil)
		delete(secret, key)
	}
	secret["proxy-url"] = []byte(p.url("https") + "/\n")
	if err := namespaces(c.Config()); err != nil {
		t.Error(err)
	}
}

func TestRouteInvalid(t *testing.T) {
	api := newAPIServer(t)
	empty := filepath.Join(t.TempDir(), "empty")
	writeFile(t, empty, nil)
	const extension = `clusters["c1"].extensions["causewayproject.github.io/route"]`
	https := func(p kubeconfig.ProxyTLS) kubeconfig.Route {
		return kubeconfig.Route{ProxyURL: "https://proxy.test", ProxyTLS: &p}
	}
	to := func(proxyURL string) func(*clientcmdapi.Config) {
		return func(c *clientcmdapi.Config) { c.Clusters["c1"].ProxyURL = proxyURL }
	}
	header := kubeconfig.Route{ProxyURL: "http://proxy.test", Header: map[string][]string{"Proxy-Authorization": {"Custom s3cret"}}}
	for _, test := range []struct {
		name   string
		route  kubeconfig.Route
		change func(*clientcmdapi.Config)
		field  string
	}{
		{"no ReadSecret", https(kubeconfig.ProxyTLS{Secret: &kubeconfig.SecretRef{Namespace: "ns", Name: "n"}}), nil, "Options.ReadSecret"},
		{"no CA file", https(kubeconfig.ProxyTLS{CAFile: empty + "x"}), nil, extension + ".proxyTLS.certificateAuthority"},
		{"empty CA file", https(kubeconfig.ProxyTLS{CAFile: empty}), nil, extension + ".proxyTLS.certificateAuthority"},
		{"no key file", https(kubeconfig.ProxyTLS{CertificateFile: empty, KeyFile: empty}), nil, extension + ".proxyTLS.clientCertificate"},
		{"proxyTLS and http", https(kubeconfig.ProxyTLS{CA: api.ca.CertPEM()}), to("http://proxy.test"), extension + ".proxyTLS"},
		{"proxyTLS and no proxy", https(kubeconfig.ProxyTLS{CA: api.ca.CertPEM()}), to(""), extension + ".proxyTLS"},
		{"header and no proxy", header, to(""), extension + ".header"},
		{"header and SOCKS5", header, to("socks5://proxy.test"), extension + ".header"},
		{"two credentials", header, to("http://u:p@proxy.test"), extension + ".header"},
		{"noProxy and no proxy", kubeconfig.Route{ProxyURL: "http://proxy.test", NoProxy: "x.test"}, to(""), extension + ".noProxy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := build(t, api, test.route)
			if test.change != nil {
				test.change(config)
			}
			_, err := connect.New(config, nil)
			var fe *kubeconfig.FieldError
			if !errors.As(err, &fe) || fe.Field != test.field || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want a FieldError of %s", err, test.field)
			}
		})
	}
}
