package probe_test

import (
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

func written(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const proxyWithPath = "a proxy with a path"

// What client-go takes is not called wrong.
func TestProbeTakesWhatClientGoTakes(t *testing.T) {
	lenient := map[string]http.HandlerFunc{ // its clock is another, say
		review:     reply(http.StatusCreated, "application/json", `{"status":{"userInfo":{"username":"u"}}}`),
		"/readyz":  reply(http.StatusOK, "text/plain", "ok"),
		"/version": reply(http.StatusOK, "application/json", `{}`),
	}
	for _, test := range []struct {
		name    string
		answers map[string]http.HandlerFunc
		change  change
	}{
		{"a token file with a line feed", nil, func(t *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{TokenFile: written(t, "good\n")}
		}},
		{"a token file with white space", nil, func(t *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{TokenFile: written(t, "\n\t good \r\n\r\n")}
		}},
		{"a token file beside a token that expired", nil, func(t *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Token: jwt(time.Unix(1e9, 0)), TokenFile: written(t, "good\n")}
		}},
		{"a token file beside a broken token", nil, func(t *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Token: "a\nb", TokenFile: written(t, "good")}
		}},
		{"a token with a token file that is not there", nil, func(t *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Token: "good", TokenFile: filepath.Join(t.TempDir(), "none")}
		}},
		{"a token that the API server takes after its end", lenient, func(_ *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Token: jwt(time.Unix(1e9, 0))}
		}},
		{"a certificate that the API server takes after its end", lenient, func(_ *testing.T, api *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			cert, key := api.ca.Issue("u", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
			u.ClientCertificateData, u.ClientKeyData = pki.CertPEM(cert), pki.KeyPEM(key)
		}},
		{"a certificate beside its key", nil, func(_ *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			both := slices.Concat(u.ClientKeyData, u.ClientCertificateData)
			u.ClientCertificateData, u.ClientKeyData = both, both
		}},
		{"a CA among others, texts and what is none", nil, func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = slices.Concat([]byte("# roots\n"), pki.NewCA("another").CertPEM(), []byte("-----BEGIN CERTIFICATE-----\nQ0E=\n-----END CERTIFICATE-----\n"),
				[]byte("-----BEGIN X509 CRL-----\nQ0E=\n-----END X509 CRL-----\n"), c.CertificateAuthorityData, []byte("-----BEGIN CERTIFICATE-----\ncut off"))
		}},
		{"a CA with a byte order mark", nil, func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = append([]byte("\xef\xbb\xbf\n"), c.CertificateAuthorityData...)
		}},
		{"a server with a slash", nil, func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server += "/" }},
		{"a server in capitals", nil, func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "HTTPS" + strings.TrimPrefix(c.Server, "https")
		}},
		{"a server's name in capitals", nil, func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.TLSServerName = "API.test"
		}},
		{"a server's name with a dot", nil, func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.TLSServerName = "api.test."
		}},
		{"a proxy in capitals", nil, func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "HTTP://" + script(t, nil, (&proxytest.HTTP{}).Handle)
		}},
		{proxyWithPath, nil, func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "http://" + script(t, nil, (&proxytest.HTTP{}).Handle) + "/path?query#fragment"
		}},
		{"a SOCKS5 proxy with a slash", nil, func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "socks5://" + script(t, nil, (&proxytest.SOCKS5{}).Handle) + "/"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := newProbed(t, test.answers)
			config := api.config(t)
			test.change(t, api, config.Clusters["c1"], config.AuthInfos["c1-admin"])
			if err := clientGo(t, config); err != nil {
				t.Fatalf("client-go does not take it: %v", err)
			}
			for _, plain := range []bool{true, false} {
				if !plain && test.name == proxyWithPath {
					continue // a Client refuses it: it may be the rest of a password
				}
				if r := (probe.Options{Plain: plain}).Run(probeContext(t), config); r.Err() != nil {
					t.Errorf("plain %v: got %v", plain, r.Err())
				} else if r.Steps[0].Detail == "no credentials" {
					t.Errorf("plain %v: got no credentials", plain)
				}
			}
		})
	}
}
