package kubeconfig_test

import (
	"crypto/x509"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

func TestBuild(t *testing.T) {
	ca, other := pki.NewCAWith(nil, nil), pki.NewCAWith(nil, nil)
	expired := pki.NewCAWith(nil, func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(1e9) })
	client, clientKey := ca.Issue("client", nil)
	text := func(b []byte) []byte { return append([]byte("# a comment\n"), b...) }

	tests := []struct {
		name string
		spec kubeconfig.Spec
		want *clientcmdapi.Config
	}{
		{
			name: "everything",
			spec: kubeconfig.Spec{
				Name:          "c1",
				Endpoint:      kubeconfig.Endpoint{Host: "api.example.com", Port: 6443},
				CA:            append(text(ca.CertPEM()), text(other.CertPEM())...),
				TLSServerName: "kubernetes.default.svc",
				Credentials:   kubeconfig.Credentials{Token: "token\n"},
				Route:         kubeconfig.Route{ProxyURL: "http://u:p%40ss@proxy:3128"},
			},
			want: config("c1", &clientcmdapi.Cluster{
				Server:                   "https://api.example.com:6443",
				CertificateAuthorityData: pki.CertPEM(ca.Cert, other.Cert),
				TLSServerName:            "kubernetes.default.svc",
				ProxyURL:                 "http://u:p%40ss@proxy:3128",
			}, &clientcmdapi.AuthInfo{Token: "token"}),
		},
		{
			name: "IPv6, a client certificate, socks5h",
			spec: kubeconfig.Spec{
				Name:        "a.b-1",
				Endpoint:    kubeconfig.Endpoint{Host: "2001:db8::1", Port: 443},
				CA:          ca.CertPEM(),
				Credentials: kubeconfig.Credentials{Certificate: text(pki.CertPEM(client, ca.Cert)), Key: text(pki.KeyPEM(clientKey))},
				Route:       kubeconfig.Route{ProxyURL: "socks5h://[2001:db8::2]:1080"},
			},
			want: config("a.b-1", &clientcmdapi.Cluster{
				Server:                   "https://[2001:db8::1]:443",
				CertificateAuthorityData: ca.CertPEM(),
				ProxyURL:                 "socks5://[2001:db8::2]:1080",
			}, &clientcmdapi.AuthInfo{ClientCertificateData: pki.CertPEM(client, ca.Cert), ClientKeyData: pki.KeyPEM(clientKey)}),
		},
		{
			name: "direct, a user given whole, an old certificate beside the CA",
			spec: kubeconfig.Spec{
				Name:     "c1",
				Endpoint: kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443},
				CA:       pki.CertPEM(expired.Cert, ca.Cert),
				Credentials: kubeconfig.Credentials{AuthInfo: &clientcmdapi.AuthInfo{
					ClientCertificate: "/elsewhere/tls.crt", ClientKey: "/elsewhere/tls.key", Impersonate: "jane",
				}},
			},
			want: config("c1", &clientcmdapi.Cluster{
				Server:                   "https://192.0.2.10:6443",
				CertificateAuthorityData: pki.CertPEM(expired.Cert, ca.Cert),
			}, &clientcmdapi.AuthInfo{ClientCertificate: "/elsewhere/tls.crt", ClientKey: "/elsewhere/tls.key", Impersonate: "jane"}),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.spec.Build()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Build (-want +got):\n%s", diff)
			}
			again, err := test.spec.Build()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("the second Build differs:\n%s", diff)
			}
			data, err := clientcmd.Write(*got)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := clientcmd.Load(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, loaded, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("written and loaded (-want +got):\n%s", diff)
			}
		})
	}
}

// config is the kubeconfig that Cluster API would write.
func config(name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name + "-admin": user},
		Contexts:       map[string]*clientcmdapi.Context{name + "-admin@" + name: {Cluster: name, AuthInfo: name + "-admin"}},
		CurrentContext: name + "-admin@" + name,
	}
}

func TestBuildCopiesAuthInfo(t *testing.T) {
	spec := kubetest.Spec(pki.NewCAWith(nil, nil))
	given := &clientcmdapi.AuthInfo{Token: "t", ImpersonateGroups: []string{"g"}, Impersonate: "jane"}
	spec.Credentials = kubeconfig.Credentials{AuthInfo: given}
	got, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	got.AuthInfos["c1-admin"].ImpersonateGroups[0] = "changed"
	if given.ImpersonateGroups[0] != "g" {
		t.Error("the kubeconfig shares the caller's AuthInfo")
	}
}

func TestEndpointString(t *testing.T) {
	for want, e := range map[string]kubeconfig.Endpoint{
		"api.test:6443":      {Host: "api.test", Port: 6443},
		"[2001:db8::1]:6443": {Host: "2001:db8::1", Port: 6443},
	} {
		if got := e.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
