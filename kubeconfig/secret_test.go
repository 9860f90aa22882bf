package kubeconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// tokenConfig is a kubeconfig without certificates, so that it can be read.
func tokenConfig() *clientcmdapi.Config {
	return config("c1", &clientcmdapi.Cluster{
		Server:                   "https://api.test:6443",
		CertificateAuthorityData: []byte("CA"),
		TLSServerName:            "kubernetes.default.svc",
		ProxyURL:                 "http://proxy:3128",
	}, &clientcmdapi.AuthInfo{Token: "t"})
}

const goldenKubeconfig = `apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: Q0E=
    proxy-url: http://proxy:3128
    server: https://api.test:6443
    tls-server-name: kubernetes.default.svc
  name: c1
contexts:
- context:
    cluster: c1
    user: c1-admin
  name: c1-admin@c1
current-context: c1-admin@c1
kind: Config
users:
- name: c1-admin
  user:
    token: t
`

func TestSecret(t *testing.T) {
	owner := &metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: "uid", Controller: new(bool)}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "c1-kubeconfig",
			Namespace:       "ns",
			Labels:          map[string]string{"cluster.x-k8s.io/cluster-name": "c1"},
			OwnerReferences: []metav1.OwnerReference{*owner.DeepCopy()},
		},
		Type: "cluster.x-k8s.io/secret",
		Data: map[string][]byte{"value": []byte(goldenKubeconfig)},
	}
	got, err := kubeconfig.Secret("c1", "ns", tokenConfig(), owner)
	if err != nil {
		t.Fatal(err)
	}
	*owner.Controller = true // the caller's, not the Secret's
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with an owner (-want +got):\n%s", diff)
	}
	want.OwnerReferences = nil
	if got, err = kubeconfig.Secret("c1", "ns", tokenConfig(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("without an owner (-want +got):\n%s", diff)
	}
}

// dangling are kubeconfigs whose current context leads nowhere.
var dangling = []struct {
	name   string
	change func(*clientcmdapi.Config)
	field  string
}{
	{"no current context", func(c *clientcmdapi.Config) { c.CurrentContext = "" }, "current-context"},
	{"unknown context", func(c *clientcmdapi.Config) { c.CurrentContext = "x" }, "current-context"},
	{"nil context", func(c *clientcmdapi.Config) { c.Contexts["c1-admin@c1"] = nil }, "current-context"},
	{"unknown cluster", func(c *clientcmdapi.Config) { delete(c.Clusters, "c1") }, `contexts["c1-admin@c1"].cluster`},
	{"nil cluster", func(c *clientcmdapi.Config) { c.Clusters["c1"] = nil }, `contexts["c1-admin@c1"].cluster`},
	{"unknown user", func(c *clientcmdapi.Config) { delete(c.AuthInfos, "c1-admin") }, `contexts["c1-admin@c1"].user`},
	{"no server", func(c *clientcmdapi.Config) { c.Clusters["c1"].Server = "" }, `clusters["c1"].server`},
	{"empty", func(c *clientcmdapi.Config) { *c = clientcmdapi.Config{} }, "current-context"},
}

func TestDanglingContext(t *testing.T) {
	check := func(t *testing.T, err error, field string) {
		t.Helper()
		if fe := new(kubeconfig.FieldError); !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("got %v, want an error of %s", err, field)
		}
	}
	for _, test := range dangling {
		t.Run(test.name, func(t *testing.T) {
			c := tokenConfig()
			test.change(c)
			_, err := kubeconfig.Secret("c1", "ns", c, nil)
			check(t, err, test.field)
			_, err = connect.New(c, nil)
			check(t, err, test.field)
		})
	}
	_, err := kubeconfig.Secret("c1", "ns", nil, nil)
	check(t, err, "config")
	_, err = connect.New(nil, nil)
	check(t, err, "config")
}

func TestSecretNames(t *testing.T) {
	for _, test := range []struct{ name, namespace, field string }{
		{"", "ns", "name"},
		{"C1", "ns", "name"},
		{strings.Repeat("a", 64), "ns", "name"},
		{"c1", "", "namespace"},
		{"c1", "a.b", "namespace"},
	} {
		_, err := kubeconfig.Secret(test.name, test.namespace, tokenConfig(), nil)
		if fe := new(kubeconfig.FieldError); !errors.As(err, &fe) || fe.Field != test.field {
			t.Errorf("Secret(%q, %q): got %v, want an error of %s", test.name, test.namespace, err, test.field)
		}
	}
}
