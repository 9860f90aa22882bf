package kubeconfig_test

import (
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// canarySpec has a secret wherever one can be.
func canarySpec(t *testing.T, ca *pki.CA) kubeconfig.Spec {
	spec := kubetest.Spec(ca)
	spec.Route.ProxyURL = "https://user:" + kubetest.EncodedCanary + "@proxy.test:3129"
	return spec
}

func TestNoSecretInErrors(t *testing.T) {
	ca := pki.NewCAWith(nil, nil)
	leaf, leafKey := ca.Issue("client", nil)
	keys := [][]byte{ca.KeyPEM(), pki.KeyPEM(leafKey)}
	more := invalidSpecs(t)
	add := func(name string, change func(*kubeconfig.Spec)) {
		more = append(more, invalidSpec{name: name, change: change})
	}
	add("every way set", func(s *kubeconfig.Spec) {
		s.Credentials = kubeconfig.Credentials{
			CAKey: keys[0], Certificate: pki.CertPEM(leaf), Key: keys[1], Token: kubetest.Canary,
			AuthInfo: &clientcmdapi.AuthInfo{Token: kubetest.Canary, Password: kubetest.Canary},
		}
	})
	add("token", func(s *kubeconfig.Spec) {
		s.Credentials = kubeconfig.Credentials{Token: kubetest.Canary + " " + kubetest.Canary}
	})
	add("AuthInfo", func(s *kubeconfig.Spec) {
		s.Credentials = kubeconfig.Credentials{AuthInfo: &clientcmdapi.AuthInfo{
			Token: kubetest.Canary, Username: "u", Password: kubetest.Canary, ClientCertificateData: []byte(kubetest.Canary), ClientKeyData: keys[1],
			Exec: &clientcmdapi.ExecConfig{Env: []clientcmdapi.ExecEnvVar{{Value: kubetest.Canary}}},
		}}
	})
	add("pasted keys", func(s *kubeconfig.Spec) { s.CA = keys[0]; s.Credentials = kubeconfig.Credentials{CAKey: keys[0][:150]} })
	add("key swapped with certificate", func(s *kubeconfig.Spec) {
		s.Credentials = kubeconfig.Credentials{Certificate: keys[1], Key: pki.CertPEM(leaf)}
	})
	add("text for keys", func(s *kubeconfig.Spec) {
		s.CA = []byte(kubetest.Canary)
		s.Credentials = kubeconfig.Credentials{Certificate: []byte(kubetest.Canary), Key: []byte(kubetest.Canary)}
	})
	add("tunnel", func(s *kubeconfig.Spec) {
		s.Route = kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{Gateway: "ftp://u:" + kubetest.Canary + "@gw", User: "u:", Password: kubetest.Canary}}
	})
	add("a URL for a host", func(s *kubeconfig.Spec) { s.Endpoint.Host = "https://u:" + kubetest.Canary + "@api.test" })
	add("a URL for a server name", func(s *kubeconfig.Spec) { s.TLSServerName = "u:" + kubetest.Canary + "@api.test" })
	for _, u := range kubetest.CanaryURLs() {
		add("proxy "+u, func(s *kubeconfig.Spec) { s.Route.ProxyURL = u })
	}
	for _, test := range more {
		spec := canarySpec(t, ca)
		test.change(&spec)
		_, err := spec.Build()
		if err == nil {
			t.Errorf("%s: no error", test.name)
		}
		for _, e := range kubetest.ErrorTree(err) {
			kubetest.CheckLeaks(t, test.name, e, keys...)
		}
		if test.name != "a URL for a server name" { // a name is printed
			kubetest.CheckLeaks(t, test.name+": Spec", spec, keys...)
			kubetest.CheckLeaks(t, test.name+": *Spec", &spec, keys...)
		}
		kubetest.CheckLeaks(t, test.name+": Route", spec.Route, keys...)
		kubetest.CheckLeaks(t, test.name+": Credentials", []any{spec.Credentials, &spec.Credentials}, keys...)
	}
}
