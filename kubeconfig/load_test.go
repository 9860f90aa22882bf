package kubeconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// duplicated is a kubeconfig with two entries of one name, which clientcmd quotes
// with all that they hold.
func duplicated(list string) []byte {
	const entries = `
users:
- {name: admin, user: {token: ` + kubetest.Canary + `, password: ` + kubetest.Canary + `}}
clusters:
- {name: c1, cluster: {server: "https://api.test", proxy-url: "http://u:` + kubetest.Canary + `@p:1"}}
contexts:
- {name: c1, context: {cluster: c1, user: admin}}
`
	head, rest, _ := strings.Cut("apiVersion: v1\nkind: Config\ncurrent-context: c1\n"+entries, list+":\n")
	first, _, _ := strings.Cut(rest, "\n")
	return []byte(head + list + ":\n" + first + "\n" + rest)
}

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"empty":        {"", "kubeconfig: the text is empty"},
		"not YAML":     {"users: *" + kubetest.Canary, "kubeconfig: the text is not YAML, or not a mapping"},
		"wrong type":   {"users: " + kubetest.Canary, "kubeconfig: the text is not a kubeconfig: a field has another type or value"},
		"two users":    {string(duplicated("users")), `kubeconfig: the text has two users of the name "admin"`},
		"two clusters": {string(duplicated("clusters")), `kubeconfig: the text has two clusters of the name "c1"`},
		"two contexts": {string(duplicated("contexts")), `kubeconfig: the text has two contexts of the name "c1"`},
	} {
		_, err := kubeconfig.Load([]byte(test.text))
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
		for _, e := range kubetest.ErrorTree(err) {
			kubetest.CheckLeaks(t, name, e)
		}
	}
	spec := kubetest.Spec(pki.NewCA("ca"))
	want, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	text, err := clientcmd.Write(*want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kubeconfig.Load(text); err != nil || got.CurrentContext != want.CurrentContext {
		t.Errorf("got %v, %v, want what was written", got, err)
	}
}

// Whatever reads a kubeconfig keeps what it can't read out of its error.
func TestDuplicateEntriesKeepSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	for _, list := range []string{"users", "clusters", "contexts"} {
		text := duplicated(list)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-kubeconfig"}, Data: map[string][]byte{kubeconfig.SecretKey: text}}
		for name, read := range map[string]func() error{
			"Merge":      func() error { _, err := kubeconfig.Merge(text, kubeconfig.Spec{}); return err },
			"FromSecret": func() error { _, err := kubeconfig.FromSecret(secret); return err },
			"ReadFile":   func() error { _, err := connect.ReadFile(file); return err },
			"Cache":      func() error { _, _, err := new(connect.Cache).Get(secret); return err },
		} {
			err := read()
			if err == nil {
				t.Errorf("%s: no error", name)
			}
			for _, e := range kubetest.ErrorTree(err) {
				kubetest.CheckLeaks(t, name, e)
			}
		}
	}
}
