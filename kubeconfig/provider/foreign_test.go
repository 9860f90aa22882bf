package provider_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// edit changes the entries of the kubeconfig's current context, as its owner may.
func (w *world) edit(change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) {
	w.t.Helper()
	s := w.secrets.Kubeconfig.DeepCopy()
	config, err := clientcmd.Load(s.Data["value"])
	if err != nil {
		w.t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	current.AuthInfo = "u"
	config.AuthInfos["u"] = clientcmdapi.NewAuthInfo()
	config.Clusters["c"], current.Cluster = config.Clusters[current.Cluster], "c"
	change(config.Clusters["c"], config.AuthInfos["u"])
	if s.Data["value"], err = clientcmd.Write(*config); err != nil {
		w.t.Fatal(err)
	}
	w.secrets.Kubeconfig = w.stored(s)
}

func (w *world) message(want string) {
	w.t.Helper()
	if got := w.cluster.Condition.Message; !strings.Contains(got, want) {
		w.t.Errorf("got %q, want %q in it", got, want)
	}
}

// What a kubeconfig names is not used, and the condition says which field it is. The route is
// kept, and is switched to if it works without. Cluster API's controllers refuse a program.
func TestForeignKubeconfig(t *testing.T) {
	command := &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "aws", InteractiveMode: "Never"}
	for name, test := range map[string]struct {
		field  string
		refuse bool // by Cluster API
		change func(*clientcmdapi.AuthInfo)
	}{
		"a program":                {`users["u"].exec`, true, func(u *clientcmdapi.AuthInfo) { u.Exec = command }},
		"a program beside a token": {`users["u"].exec`, true, func(u *clientcmdapi.AuthInfo) { u.Exec, u.Token = command, canary }},
		"a provider": {`users["u"].auth-provider`, true, func(u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: map[string]string{"id-token": canary}}
		}},
		"a provider without a name": {`users["u"].auth-provider`, true, func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{} }},
		"a token's file":            {`users["u"].tokenFile`, false, func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/run/token" }},
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			w.controlPlane()
			w.annotate("mode", "decorate")
			w.settle()
			w.condition(metav1.ConditionTrue, provider.ReasonReady)
			w.edit(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { test.change(u) })
			w.annotate("proxy-url", proxyA)
			w.wait(10 * time.Minute)
			w.proxy(proxyA)
			if test.refuse {
				w.condition(metav1.ConditionFalse, "ConfigFailed")
				w.message(test.field + " names a program, which Cluster API's controllers refuse, too: want a token, or client-certificate-data and client-key-data")
			} else {
				w.condition(metav1.ConditionTrue, provider.ReasonReady)
				w.message("The probe asked without credentials: " + test.field + " names a file, which is not used here")
			}
			w.probe = func(*clientcmdapi.Cluster) error { return errors.New("auth: the API server wants credentials") }
			w.wait(10 * time.Minute)
			w.proxy(proxyA)
			w.condition(metav1.ConditionFalse, "AuthFailed")
			w.message(test.field)
			w.edit(func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {})
			w.probe = down()
			w.wait(10 * time.Minute)
			w.condition(metav1.ConditionTrue, provider.ReasonReady)
		})
	}
	extension := func(text string) runtime.Object {
		return &runtime.Unknown{Raw: []byte(text), ContentType: "application/json"}
	}
	inBubble(t, "a CA's file", func(t *testing.T, w *world) {
		marked(w)
		w.edit(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthority, c.CertificateAuthorityData = "/dev/zero", nil
		})
		probes := w.probes
		w.wait(10 * time.Minute)
		w.proxy(proxyA)
		w.condition(metav1.ConditionFalse, "ConfigFailed")
		w.message(`clusters["c"].certificate-authority: names a file`)
		if w.probes != probes {
			t.Errorf("got %d probes, want none", w.probes-probes)
		}
	})
	inBubble(t, "an extension's file", func(t *testing.T, w *world) {
		w.controlPlane()
		w.edit(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = secureProxy
			c.Extensions = map[string]runtime.Object{kubeconfig.ExtensionName: extension(`{"apiVersion":"` + kubeconfig.ExtensionAPIVersion + `","kind":"` + kubeconfig.ExtensionKind + `","proxyTLS":{"clientCertificate":"c","clientKey":"k"}}`)}
		})
		w.annotate("mode", "decorate")
		w.settle()
		w.condition(metav1.ConditionTrue, provider.ReasonReady) // a plain client-go does not look at it
		w.probe = down(secureProxy)
		w.wait(10 * time.Minute)
		w.condition(metav1.ConditionFalse, "TCPFailed")
		w.message(`Nor can programs that use package connect take the route: kubeconfig: clusters["c"].extensions["causewayproject.github.io/route"].proxyTLS.clientCertificate: names a file`)
	})
	for name, text := range map[string]string{
		"a long text":      "# " + strings.Repeat("x", 1<<20),
		"many nodes":       "x: [" + strings.Repeat(",", 100_000) + "]",
		"many keys":        "extensions: [{name: x, extension: {" + strings.Repeat("a:, ", 40_000) + "}}]",
		"a long alias":     "a: &a " + strings.Repeat("x", 500_000) + "\nx: [" + strings.Repeat("*a,", 10) + "]",
		"a nested alias":   "a: &a [" + strings.Repeat("x,", 2000) + "]\nb: &b [" + strings.Repeat("*a,", 1000) + "]\nx: [" + strings.Repeat("*b,", 1000) + "]",
		"an endless alias": "a: &a [*a]",
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			marked(w)
			s := w.secrets.Kubeconfig.DeepCopy()
			s.Data["value"] = []byte(text)
			w.secrets.Kubeconfig = w.stored(s)
			w.wait(10 * time.Minute)
			w.condition(metav1.ConditionFalse, provider.ReasonCorrupted)
			w.message("is too large")
			if !bytes.Equal(w.secrets.Kubeconfig.Data["value"], []byte(text)) {
				t.Error("what was not looked at is replaced")
			}
		})
	}
}
