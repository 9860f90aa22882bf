package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// secretFor builds the Secret of an administrator's kubeconfig for a route, as
// a kubeconfig provider does.
func secretFor(t *testing.T, b *bed.Bed, name string, r route) *corev1.Secret {
	t.Helper()
	config, err := kubeconfig.Spec{
		Name:     name,
		Endpoint: kubeconfig.Endpoint{Host: b.Kube.Host(), Port: b.Kube.Port()},
		// kubectl has one set of authorities for the server and the proxy.
		CA:          slices.Concat(b.Kube.CA.CertPEM(), r.proxyCA),
		Credentials: kubeconfig.Credentials{CAKey: b.Kube.CA.KeyPEM()},
		Route:       kubeconfig.Route{ProxyURL: r.proxy.String()},
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := kubeconfig.Secret(name, "default", config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// writeKubeconfig writes what the Secret holds and returns the file's path.
func writeKubeconfig(t *testing.T, b *bed.Bed, r route) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, secretFor(t, b, "bed", r).Data[kubeconfig.SecretKey], 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
