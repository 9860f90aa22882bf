package connect_test

import (
	"crypto/tls"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// canarySpec has a secret wherever one can be.
func canarySpec(t *testing.T, ca *pki.CA) kubeconfig.Spec {
	spec := kubetest.Spec(ca)
	spec.Route.ProxyURL = "https://user:" + kubetest.EncodedCanary + "@proxy.test:3129"
	return spec
}

func TestNoSecretInClient(t *testing.T) {
	api := newAPIServer(t)
	spec := canarySpec(t, api.ca)
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	user := config.AuthInfos["c1-admin"]
	keys := [][]byte{user.ClientKeyData}
	opts := &connect.Options{
		ProxyTLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{[]byte(kubetest.Canary)}}}, ServerName: kubetest.Canary},
		Forward:  &dialer.HTTPConnect{Addr: "p:1", Auth: dialer.Basic(dialer.Password("u", kubetest.Canary))},
	}
	kubetest.CheckLeaks(t, "ClientOptions", *opts)
	kubetest.CheckLeaks(t, "*ClientOptions", opts)
	for name, change := range map[string]func(*clientcmdapi.AuthInfo){
		"certificate": func(*clientcmdapi.AuthInfo) {},
		"token":       func(u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{Token: kubetest.Canary} },
		"basic":       func(u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{Username: "u", Password: kubetest.Canary} },
	} {
		config := config.DeepCopy()
		change(config.AuthInfos["c1-admin"])
		c := kubetest.NewClient(t, config, opts)
		kubetest.CheckLeaks(t, name+": Client", c, keys...)
		kubetest.CheckLeaks(t, name+": Config", c.Config(), keys...)
		kubetest.CheckLeaks(t, name+": HTTP", c.HTTP(), keys...)
	}
	for _, u := range kubetest.CanaryURLs() {
		config.Clusters["c1"].ProxyURL = u
		c, err := connect.New(config, nil)
		if err == nil {
			t.Errorf("%s: no error", u)
			c.Close()
		}
		for _, e := range kubetest.ErrorTree(err) {
			kubetest.CheckLeaks(t, "NewClient with "+u, e, keys...)
		}
	}
	config.Clusters["c1"].ProxyURL = spec.Route.ProxyURL
	for name, change := range map[string]func(*clientcmdapi.Config){
		"server":      func(c *clientcmdapi.Config) { c.Clusters["c1"].Server = "https://u:" + kubetest.Canary + "@api.test" },
		"bad server":  func(c *clientcmdapi.Config) { c.Clusters["c1"].Server = "https://u:" + kubetest.Canary + " @api.test" },
		"key":         func(c *clientcmdapi.Config) { c.AuthInfos["c1-admin"].ClientKeyData = []byte(kubetest.Canary) },
		"cut off key": func(c *clientcmdapi.Config) { c.AuthInfos["c1-admin"].ClientKeyData = keys[0][:150] },
		"two ways": func(c *clientcmdapi.Config) {
			*c.AuthInfos["c1-admin"] = clientcmdapi.AuthInfo{Token: kubetest.Canary, Username: kubetest.Canary, Password: kubetest.Canary}
		},
		"CA":       func(c *clientcmdapi.Config) { c.Clusters["c1"].CertificateAuthorityData = []byte(kubetest.Canary) },
		"dangling": func(c *clientcmdapi.Config) { c.CurrentContext = "x" },
	} {
		config := config.DeepCopy()
		change(config)
		_, err := connect.New(config, nil)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		for _, e := range kubetest.ErrorTree(err) {
			kubetest.CheckLeaks(t, "NewClient: "+name, e, keys...)
		}
	}
	// No proxy at all: what a request fails with.
	c := kubetest.NewClient(t, config, &connect.Options{Forward: api.dialer()})
	for _, e := range kubetest.ErrorTree(namespaces(c.Config())) {
		kubetest.CheckLeaks(t, "request", e, keys...)
	}
}
