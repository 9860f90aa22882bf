package kubeconfig_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// invalidSpec is a change that makes a good Spec unusable.
type invalidSpec struct {
	name   string
	change func(*kubeconfig.Spec)
	field  string
	text   string // part of what is said
}

func invalidSpecs(t testing.TB) []invalidSpec {
	type spec = kubeconfig.Spec
	var (
		key     = pki.NewKey()
		other   = pki.NewCAWith(nil, nil)
		expired = pki.NewCAWith(key, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
		early   = pki.NewCAWith(key, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
		noCA    = pki.NewCAWith(key, func(c *x509.Certificate) { c.IsCA, c.MaxPathLenZero = false, false })
		noSign  = pki.NewCAWith(key, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
		good    = pki.NewCAWith(key, nil)
	)
	pair := func(change func(*x509.Certificate)) (cert, key []byte) {
		leaf, signer := other.Issue("client", change)
		return pki.CertPEM(leaf), pki.KeyPEM(signer)
	}
	leafPEM, leafKey := pair(nil)
	largePEM, largeKey := good.LargeRSA()
	oldPEM, oldKey := pair(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	servePEM, serveKey := pair(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })

	withCA := func(a *pki.CA) func(*spec) {
		return func(s *spec) {
			s.CA = a.CertPEM()
			s.Credentials = kubeconfig.Credentials{CAKey: a.KeyPEM()}
		}
	}
	host := func(h string) func(*spec) { return func(s *spec) { s.Endpoint.Host = h } }
	port := func(p int32) func(*spec) { return func(s *spec) { s.Endpoint.Port = p } }
	ca := func(data string) func(*spec) { return func(s *spec) { s.CA = []byte(data) } }
	creds := func(c kubeconfig.Credentials) func(*spec) { return func(s *spec) { s.Credentials = c } }
	proxy := func(u string) func(*spec) { return func(s *spec) { s.Route.ProxyURL = u } }
	tunnel := func(change func(*kubeconfig.Tunnel), host ...string) func(*spec) {
		return func(s *spec) {
			t := &kubeconfig.Tunnel{Gateway: "http://gw:3128", User: "u", Password: "ticket", Cluster: "default/prod"}
			if change != nil {
				change(t)
			}
			s.Route, s.Endpoint = kubeconfig.Route{Tunnel: t}, kubeconfig.Endpoint{Host: strings.Join(host, "")}
		}
	}
	route := func(r kubeconfig.Route) func(*spec) { return func(s *spec) { s.Route = r } }
	header := func(proxy, name, value string) func(*spec) {
		return func(s *spec) { s.Route = kubeconfig.Route{ProxyURL: proxy, Header: map[string][]string{name: {value}}} }
	}
	proxyTLS := func(t kubeconfig.ProxyTLS) func(*spec) {
		return route(kubeconfig.Route{ProxyURL: "https://proxy", ProxyTLS: &t})
	}
	more := func(e ...kubeconfig.Endpoint) func(*spec) { return func(s *spec) { s.MoreEndpoints = e } }
	named := func(n string) func(*spec) { return func(s *spec) { s.Name = n } }

	return []invalidSpec{
		{"no name", named(""), "Name", "required"},
		{"upper case", named("Cluster"), "Name", "DNS name"},
		{"underscore", named("a_b"), "Name", "DNS name"},
		{"long name", named(strings.Repeat("a", 64)), "Name", "at most 63"},

		{"no host", host(""), "Endpoint.Host", "required"},
		{"scheme", host("https://api.test"), "Endpoint.Host", "scheme"},
		{"host with port", host("api.test:6443"), "Endpoint.Host", "holds a port"},
		{"address with port", host("192.0.2.1:6443"), "Endpoint.Host", "holds a port"},
		{"path", host("api.test/x"), "Endpoint.Host", "path"},
		{"space", host("api.test "), "Endpoint.Host", "space"},
		{"newline", host("api.test\n"), "Endpoint.Host", "control character"},
		{"brackets", host("[2001:db8::1]"), "Endpoint.Host", "brackets"},
		{"zone", host("fe80::1%eth0"), "Endpoint.Host", "zone"},
		{"no IPv6", host("2001:db8::x"), "Endpoint.Host", "not an IPv6 address"},
		{"user info", host("user@api.test"), "Endpoint.Host", "user info"},
		{"IDN", host("bücher.test"), "Endpoint.Host", "punycode"},
		{"empty label", host("api..test"), "Endpoint.Host", "1 to 63 bytes"},
		{"dash", host("-api.test"), "Endpoint.Host", "'-'"},
		{"percent", host("api%2etest"), "Endpoint.Host", "letters, digits"},
		{"no address", host("256.1.1.1"), "Endpoint.Host", "not an IP address"},
		{"long host", host(strings.Repeat("a.", 127) + "ab"), "Endpoint.Host", "253"},
		{"no port", port(0), "Endpoint.Port", "required, from 1 to 65535"},
		{"negative port", port(-1), "Endpoint.Port", "got -1"},
		{"large port", port(65536), "Endpoint.Port", "got 65536"},

		{"no CA", ca(""), "CA", "required"},
		{"CA is no PEM", ca("hello"), "CA", "no PEM block"},
		{"CA is no certificate", ca("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"), "CA", "PEM block 1 is no certificate"},
		{"CA cut off", func(s *spec) { s.CA = append(s.CA, other.CertPEM()[:200]...) }, "CA", "cut off"},
		{"CA broken before a good one", func(s *spec) {
			s.CA = append([]byte("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"), s.CA...)
		}, "CA", "cut off"},
		{"CA with its key", func(s *spec) { s.CA = append(s.CA, good.KeyPEM()...) }, "CA", "private key"},
		{"CA with another block", func(s *spec) { s.CA = append(s.CA, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL"})...) }, "CA", "PEM block 2"},
		{"expired CA", withCA(expired), "CA", "expired"},
		{"CA of tomorrow", withCA(early), "CA", "not valid before"},
		{"expired CAs", func(s *spec) { s.CA = pki.CertPEM(early.Cert, expired.Cert) }, "CA", "none of the certificates"},
		{"expired CA beside another", func(s *spec) { withCA(expired)(s); s.CA = pki.CertPEM(expired.Cert, other.Cert) }, "CA", "can't sign with CAKey: the certificate expired"},
		{"no CA's certificate", withCA(noCA), "CA", "not a CA's"},
		{"CA may not sign", withCA(noSign), "CA", "key usage"},

		{"server name", func(s *spec) { s.TLSServerName = "https://api.test" }, "TLSServerName", "scheme"},

		{"no credentials", creds(kubeconfig.Credentials{}), "Credentials", "none is set"},
		{"two credentials", func(s *spec) { s.Credentials.Token = "t" }, "Credentials", "CAKey and Token are set"},
		{"CA key of another", func(s *spec) { s.Credentials.CAKey = other.KeyPEM() }, "Credentials.CAKey", "not the key of a certificate in CA"},
		{"CA key is no PEM", creds(kubeconfig.Credentials{CAKey: []byte("key")}), "Credentials.CAKey", "no private key"},
		{"CA key is a certificate", creds(kubeconfig.Credentials{CAKey: good.CertPEM()}), "Credentials.CAKey", "no private key"},
		{"CA key is broken", creds(kubeconfig.Credentials{CAKey: []byte("-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n")}), "Credentials.CAKey", "can't be read"},
		{"large CA key", creds(kubeconfig.Credentials{CAKey: largeKey}), "Credentials.CAKey", "too large: want RSA with at most 8192 bits"},
		{"large client key", creds(kubeconfig.Credentials{Certificate: leafPEM, Key: largeKey}), "Credentials.Key", "too large"},
		{"large key in a certificate", creds(kubeconfig.Credentials{Certificate: largePEM, Key: leafKey}), "Credentials.Certificate", "the RSA key has 32768 bits"},
		{"large key in the CA", ca(string(largePEM)), "CA", "the RSA key has 32768 bits"},
		{"many certificates in the CA", ca(strings.Repeat(string(other.CertPEM()), 513)), "CA", "want at most 512 certificates"},
		{"CA key cut off", creds(kubeconfig.Credentials{CAKey: good.KeyPEM()[:100]}), "Credentials.CAKey", "cut off"},
		{"CA key encrypted", creds(kubeconfig.Credentials{CAKey: pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY"})}), "Credentials.CAKey", "encrypted"},
		{"CA key encrypted the old way", creds(kubeconfig.Credentials{CAKey: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"DEK-Info": "x"}})}), "Credentials.CAKey", "encrypted"},
		{"certificate without key", creds(kubeconfig.Credentials{Certificate: leafPEM}), "Credentials.Key", "required"},
		{"key without certificate", creds(kubeconfig.Credentials{Key: leafKey}), "Credentials.Certificate", "required"},
		{"another key", creds(kubeconfig.Credentials{Certificate: leafPEM, Key: good.KeyPEM()}), "Credentials.Key", "not the key"},
		{"key is none", creds(kubeconfig.Credentials{Certificate: leafPEM, Key: leafPEM}), "Credentials.Key", "no private key"},
		{"expired certificate", creds(kubeconfig.Credentials{Certificate: oldPEM, Key: oldKey}), "Credentials.Certificate", "expired"},
		{"server's certificate", creds(kubeconfig.Credentials{Certificate: servePEM, Key: serveKey}), "Credentials.Certificate", "client authentication"},
		{"blank token", creds(kubeconfig.Credentials{Token: " \n"}), "Credentials.Token", "blank"},
		{"two tokens", creds(kubeconfig.Credentials{Token: "a\nb"}), "Credentials.Token", "control character"},
		{"token beyond ASCII", creds(kubeconfig.Credentials{Token: "tökn"}), "Credentials.Token", "ASCII"},
		{"two ways in AuthInfo", creds(kubeconfig.Credentials{AuthInfo: &clientcmdapi.AuthInfo{Token: "t", Username: "u"}}), "Credentials.AuthInfo", "more than one"},
		{"AuthInfo without key", creds(kubeconfig.Credentials{AuthInfo: &clientcmdapi.AuthInfo{ClientCertificate: "/x"}}), "Credentials.AuthInfo", "client-key"},

		{"proxy is no URL", proxy("http://a b"), "Route.ProxyURL", "not a URL"},
		{"proxy without scheme", proxy("//proxy:3128"), "Route.ProxyURL", "no scheme"},
		{"unknown proxy scheme", proxy("ftp://proxy"), "Route.ProxyURL", "not http, https, socks5 or"},
		{"proxy on a unix socket", proxy("http+unix:///run/proxy.sock"), "Route.ProxyURL", "not http, https, socks5 or"},
		{"proxy without host", proxy("http://"), "Route.ProxyURL", "no host"},
		{"long SOCKS password", proxy("socks5://u:" + strings.Repeat("p", 256) + "@proxy"), "Route.ProxyURL", "255"},
		{"tunnel and proxy", func(s *spec) { tunnel(nil)(s); s.Route.ProxyURL = "http://proxy" }, "Route", "one of them"},
		{"no gateway", tunnel(func(t *kubeconfig.Tunnel) { t.Gateway = "" }), "Route.Tunnel.Gateway", "required"},
		{"gateway scheme", tunnel(func(t *kubeconfig.Tunnel) { t.Gateway = "ftp://gw" }), "Route.Tunnel.Gateway", "not http, https, socks5 or"},
		{"gateway with user", tunnel(func(t *kubeconfig.Tunnel) { t.Gateway = "http://u:p@gw" }), "Route.Tunnel.Gateway", "belongs into User and Password"},
		{"no gateway user", tunnel(func(t *kubeconfig.Tunnel) { t.User, t.Cluster = "", "" }), "Route.Tunnel.User", "required, or Cluster"},
		{"gateway user with colon", tunnel(func(t *kubeconfig.Tunnel) { t.User = "a:b" }), "Route.Tunnel.User", "colon"},
		{"long ticket for SOCKS", tunnel(func(t *kubeconfig.Tunnel) { t.Gateway, t.Password = "socks5://gw", strings.Repeat("p", 256) }), "Route.Tunnel.User", "255"},
		{"no gateway password", tunnel(func(t *kubeconfig.Tunnel) { t.Password = "" }), "Route.Tunnel.Password", "required"},
		{"the cluster's token for the gateway", func(s *spec) {
			tunnel(nil)(s)
			s.Credentials = kubeconfig.Credentials{Token: "ticket\n"}
		}, "Route.Tunnel.Password", "cluster's token"},
		{"half an endpoint", tunnel(nil, "x"), "Endpoint.Port", "required"},

		{"second endpoint", more(kubeconfig.Endpoint{Host: "b.test", Port: 1}, kubeconfig.Endpoint{Host: "https://b.test", Port: 1}), "MoreEndpoints[1].Host", "scheme"},
		{"second endpoint's port", more(kubeconfig.Endpoint{Host: "b.test"}), "MoreEndpoints[0].Port", "required"},
		{"direct and proxy", route(kubeconfig.Route{Direct: true, ProxyURL: "http://proxy"}), "Route", "Direct"},
		{"direct and tunnel", func(s *spec) { tunnel(nil)(s); s.Route.Direct = true }, "Route", "Direct"},
		{"no_proxy without proxy", route(kubeconfig.Route{NoProxy: "a.test"}), "Route.NoProxy", "neither ProxyURL nor Tunnel"},
		{"no_proxy with a URL", route(kubeconfig.Route{ProxyURL: "http://proxy", NoProxy: "a.test,http://u:" + kubetest.Canary + "@b.test"}), "Route.NoProxy", "covers no host"},
		{"header without proxy", header("", "X-Tenant", "blue"), "Route.Header", "neither ProxyURL nor Tunnel"},
		{"header for SOCKS", header("socks5h://proxy", "X-Tenant", "blue"), "Route.Header", "SOCKS5"},
		{"header's name", header("http://proxy", "X Tenant", "blue"), "Route.Header", "a name"},
		{"header that frames", header("http://proxy", "content-length", "1"), "Route.Header", "Content-Length"},
		{"header that routes", header("http://proxy", "host", "x"), "Route.Header", "Host"},
		{"header that encodes", header("http://proxy", "Transfer-Encoding", "chunked"), "Route.Header", "Transfer-Encoding"},
		{"header's value", header("http://proxy", "X-Tenant", kubetest.Canary+"\r\nX: y"), "Route.Header", "control character"},
		{"header twice", func(s *spec) {
			header("http://proxy", "X-Tenant", kubetest.Canary)(s)
			s.Route.Header["x-tenant"] = []string{kubetest.Canary}
		}, "Route.Header", "twice"},
		{"two ways to the proxy", header("http://u:p@proxy", "proxy-authorization", "Bearer "+kubetest.Canary), "Route.Header", "want one of them"},
		{"header and ticket", func(s *spec) {
			tunnel(nil)(s)
			s.Route.Header = map[string][]string{"Proxy-Authorization": {kubetest.Canary}}
		}, "Route.Header", "want one of them"},
		{"TLS without proxy", route(kubeconfig.Route{ProxyTLS: &kubeconfig.ProxyTLS{}}), "Route.ProxyTLS", "neither ProxyURL nor Tunnel"},
		{"TLS to an http proxy", route(kubeconfig.Route{ProxyURL: "http://proxy", ProxyTLS: &kubeconfig.ProxyTLS{}}), "Route.ProxyTLS", "not for http"},
		{"proxy's CA", proxyTLS(kubeconfig.ProxyTLS{CA: []byte("x")}), "Route.ProxyTLS.CA", "no PEM block"},
		{"proxy's CA is a key", proxyTLS(kubeconfig.ProxyTLS{CA: leafKey}), "Route.ProxyTLS.CA", "private key"},
		{"proxy's name", proxyTLS(kubeconfig.ProxyTLS{ServerName: "a b"}), "Route.ProxyTLS.ServerName", "space"},
		{"proxy's certificate without key", proxyTLS(kubeconfig.ProxyTLS{CertificateFile: "/x"}), "Route.ProxyTLS.KeyFile", "required along with CertificateFile"},
		{"proxy's key without certificate", proxyTLS(kubeconfig.ProxyTLS{KeyFile: "/x"}), "Route.ProxyTLS.CertificateFile", "required along with KeyFile"},
		{"two certificates for the proxy", proxyTLS(kubeconfig.ProxyTLS{CertificateFile: "/x", KeyFile: "/y", Secret: &kubeconfig.SecretRef{Namespace: "a", Name: "b"}}), "Route.ProxyTLS.Secret", "one client certificate"},
		{"Secret without namespace", proxyTLS(kubeconfig.ProxyTLS{Secret: &kubeconfig.SecretRef{Name: "b"}}), "Route.ProxyTLS.Secret.Namespace", "required"},
		{"Secret without name", proxyTLS(kubeconfig.ProxyTLS{Secret: &kubeconfig.SecretRef{Namespace: "b"}}), "Route.ProxyTLS.Secret.Name", "required"},
		{"Secret's name", proxyTLS(kubeconfig.ProxyTLS{Secret: &kubeconfig.SecretRef{Namespace: "b", Name: "a/b"}}), "Route.ProxyTLS.Secret.Name", "DNS name"},

		{"colon in user", proxy("http://a%3Ab:c@proxy"), "Route.ProxyURL", "colon"},
	}
}

func TestInvalidSpec(t *testing.T) {
	ca := pki.NewCAWith(nil, nil)
	for _, test := range invalidSpecs(t) {
		t.Run(test.name, func(t *testing.T) {
			spec := kubetest.Spec(ca)
			test.change(&spec)
			config, err := spec.Build()
			if config != nil {
				t.Error("got a kubeconfig along with the error")
			}
			// One mistake is one error, that of its field.
			var fields []string
			for _, e := range fieldErrors(err) {
				fields = append(fields, e.Field)
			}
			if diff := cmp.Diff([]string{test.field}, fields); diff != "" {
				t.Fatalf("fields (-want +got):\n%s\n%v", diff, err)
			}
			if got := err.Error(); !strings.Contains(got, "kubeconfig: "+test.field+": ") || !strings.Contains(got, test.text) {
				t.Errorf("got %q, want the field and %q", got, test.text)
			}
		})
	}
}

// fieldErrors returns every FieldError in the tree of err.
func fieldErrors(err error) []*kubeconfig.FieldError {
	var all []*kubeconfig.FieldError
	for _, e := range kubetest.ErrorTree(err) {
		if fe, ok := e.(*kubeconfig.FieldError); ok {
			all = append(all, fe)
		}
	}
	return all
}

func TestInvalidSpecAllFields(t *testing.T) {
	_, err := kubeconfig.Spec{
		TLSServerName: "a b",
		Credentials:   kubeconfig.Credentials{Certificate: []byte("x"), Key: []byte("y")},
		Route:         kubeconfig.Route{ProxyURL: "x"},
	}.Build()
	var got []string
	for _, e := range fieldErrors(err) {
		got = append(got, e.Field)
	}
	want := []string{
		"Name", "Endpoint.Host", "Endpoint.Port", "CA", "TLSServerName",
		"Credentials.Certificate", "Credentials.Key", "Route.ProxyURL",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != len(want) {
		t.Errorf("got %d lines, want one for each of %d fields:\n%v", lines, len(want), err)
	}
	if fe := new(kubeconfig.FieldError); !errors.As(err, &fe) || fe.Field != "Name" {
		t.Errorf("errors.As: got %v, want the first field's", fe)
	}
}
