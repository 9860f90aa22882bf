package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// scan looks for secrets in all that a provider printed, and in all that it
// wrote where secrets are not kept: Events, the Clusters, and what Secrets have
// besides their data.
func (m *management) scan(t *testing.T, program *bed.Running, namespaces []string) {
	t.Helper()
	texts := map[string]string{"its output": program.Stdout(), "its errors": program.Stderr()}
	var canaries []string
	for _, namespace := range namespaces {
		in := client.InNamespace(namespace)
		var events corev1.EventList
		var clusters clusterv1.ClusterList
		var secrets corev1.SecretList
		for _, list := range []client.ObjectList{&events, &clusters, &secrets} {
			if err := m.admin.List(t.Context(), list, in); err != nil {
				t.Fatal(err)
			}
		}
		canaries = append(canaries, canariesOf(&secrets)...)
		for i := range secrets.Items {
			secrets.Items[i].Data = nil
		}
		if len(events.Items) == 0 {
			t.Errorf("%s: there are no Events to be scanned", namespace)
		}
		for what, list := range map[string]any{"Events": events, "Clusters": clusters, "Secrets' metadata": secrets} {
			text, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			texts[what+" of "+namespace] = string(text)
		}
	}
	slices.Sort(canaries)
	canaries = slices.Compact(canaries)
	for what, text := range texts {
		for _, canary := range canaries {
			if strings.Contains(text, canary) {
				t.Errorf("%s: a secret is in it: %.8s...", what, canary)
			}
		}
	}
	t.Logf("scanned %d texts, the output of %d bytes among them, for %d secrets", len(texts), len(texts["its output"]), len(canaries))
}

// canariesOf returns the passwords and keys in Secrets, in the forms in which
// they may be found, and those of the bed.
func canariesOf(secrets *corev1.SecretList) []string {
	found := []string{bed.ProxyPassword, rowPassword, password, "PRIVATE KEY"}
	for _, s := range secrets.Items {
		for name, value := range s.Data {
			switch name {
			case "password":
				found = append(found, string(value))
			case "tls.key":
				found = append(found, keyLine(value))
			case kubeconfig.SecretKey:
				if config, err := clientcmd.Load(value); err == nil {
					for _, user := range config.AuthInfos {
						found = append(found, keyLine(user.ClientKeyData))
					}
				}
			}
		}
	}
	for _, f := range found[:len(found):len(found)] {
		found = append(found, url.QueryEscape(f), url.PathEscape(f), base64.StdEncoding.EncodeToString([]byte(f)))
	}
	return found
}

// keyLine returns a line of a key's PEM.
func keyLine(key []byte) string {
	lines := strings.Split(string(key), "\n")
	if len(lines) < 3 {
		return string(key)
	}
	return lines[1]
}
