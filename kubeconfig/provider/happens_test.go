package provider_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const (
	endpointA = "https://192.0.2.10:6443"
	endpointB = "https://192.0.2.20:6443"
)

// marked is a decorated Secret with a user's own in it.
func marked(w *world) {
	w.t.Helper()
	w.controlPlane()
	w.mark()
	w.annotate("proxy-url", proxyA)
	w.wait(10 * time.Minute)
	w.phase(provider.StateReady)
}

func (w *world) server(want string) {
	w.t.Helper()
	if got := w.kubeconfig().Server; got != want {
		w.t.Fatalf("got server %s, want %s", got, want)
	}
}

func (w *world) happened(reason string) {
	w.t.Helper()
	for _, e := range w.events {
		if e.Reason == reason {
			return
		}
	}
	w.t.Fatalf("no Event %s: %s", reason, toJSON(w.events))
}

// What happens to a Cluster, and what becomes of its decorated Secret.
func TestWhatHappens(t *testing.T) {
	inBubble(t, "CA changed", func(t *testing.T, w *world) {
		marked(w)
		old := w.kubeconfig().CertificateAuthorityData
		w.ca = newAuthority(t)
		w.secrets.CA = w.ca.secret()
		w.probe = down(proxyA) // the API server does not know of it yet
		w.wait(time.Minute)
		if !bytes.Equal(w.kubeconfig().CertificateAuthorityData, old) {
			t.Fatal("written though the probe failed")
		}
		w.probe = down()
		w.wait(time.Minute)
		if !bytes.Equal(bytes.TrimSpace(w.kubeconfig().CertificateAuthorityData), bytes.TrimSpace(w.ca.cert)) {
			t.Fatal("the CA is the old one")
		}
		pool := newPool(w.ca.cert)
		if _, err := clientCertificate(t, w.secrets.Kubeconfig).Verify(pool); err != nil {
			t.Error(err)
		}
		w.kept()
		w.proxy(proxyA)
	})
	inBubble(t, "CA changed, without its key", func(t *testing.T, w *world) {
		marked(w)
		w.ca = newAuthority(t)
		w.secrets.CA = w.ca.secret()
		delete(w.secrets.CA.Data, "tls.key")
		first := clientCertificate(t, w.secrets.Kubeconfig)
		w.settle()
		if !bytes.Equal(bytes.TrimSpace(w.kubeconfig().CertificateAuthorityData), bytes.TrimSpace(w.ca.cert)) {
			t.Error("the CA is the old one")
		}
		if !clientCertificate(t, w.secrets.Kubeconfig).Equal(first) {
			t.Error("the client certificate is another one")
		}
	})
	inBubble(t, "endpoint moved", func(t *testing.T, w *world) {
		marked(w)
		w.cluster.Endpoint.Host = "192.0.2.20"
		w.settle()
		w.server(endpointB)
		w.phase(provider.StateGrace)
		w.proxy(proxyA)
		w.kept()
	})
	inBubble(t, "a server that somebody chose", func(t *testing.T, w *world) {
		marked(w)
		s := w.secrets.Kubeconfig.DeepCopy()
		s.Data["value"] = bytes.Replace(s.Data["value"], []byte(endpointA), []byte("https://chosen.test:6443"), 1)
		w.secrets.Kubeconfig = w.stored(s)
		w.settle()
		w.cluster.Endpoint.Host = "192.0.2.20"
		w.wait(15 * time.Minute)
		w.server("https://chosen.test:6443")
		w.proxy(proxyA)
	})
	inBubble(t, "proxy password changed", func(t *testing.T, w *world) {
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"username": "u", "password": canary, "proxy-url": proxyA})
		marked(w)
		w.proxy("http://u:" + canary + "@a.test:3128")
		previous := w.secrets.Kubeconfig.Data[provider.DataPrevious]
		w.probe = down(canary)
		w.route("route", map[string]string{"username": "u", "password": "new+" + canary, "proxy-url": proxyA + "\n"})
		w.probe = down("u:" + canary)
		w.settle()
		w.proxy("http://u:new+" + canary + "@a.test:3128")
		w.phase(provider.StateReady) // no grace period
		if !bytes.Equal(previous, w.secrets.Kubeconfig.Data[provider.DataPrevious]) {
			t.Error("the previous route is one with the old password")
		}
		w.kept()
	})
	inBubble(t, "proxy down", func(t *testing.T, w *world) {
		marked(w)
		w.probe = down(proxyA)
		writes := w.writes
		w.wait(15 * time.Minute)
		w.condition(metav1.ConditionFalse, "TCPFailed")
		if w.proxy(proxyA); w.writes != writes+1 {
			t.Errorf("%d writes, want one, of the condition", w.writes-writes)
		}
		w.probe = down()
		w.wait(time.Minute)
		w.condition(metav1.ConditionTrue, provider.ReasonReady)
		w.kept()
	})
	inBubble(t, "a probe fails once", func(t *testing.T, w *world) {
		marked(w)
		writes := w.writes
		time.Sleep(2 * time.Minute)
		w.probe = down(proxyA)
		w.settle()
		w.probe = down()
		w.wait(time.Minute)
		if w.condition(metav1.ConditionTrue, provider.ReasonReady); w.writes != writes {
			t.Error("written")
		}
	})
	inBubble(t, "Secret deleted", func(t *testing.T, w *world) {
		marked(w)
		w.secrets.Kubeconfig = nil
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNoSecret)
		w.controlPlane()
		w.settle()
		w.proxy(proxyA)
	})
	inBubble(t, "Secret corrupted", func(t *testing.T, w *world) {
		marked(w)
		for _, text := range []string{"", "clusters: [" + canary, "a: b", "current-context: x"} {
			s := w.secrets.Kubeconfig.DeepCopy()
			s.Data["value"] = []byte(text)
			w.secrets.Kubeconfig = w.stored(s)
			w.settle()
			w.happened(provider.ReasonRebuilt)
			time.Sleep(10 * time.Minute)
			w.proxy(proxyA)
			if s.Type != w.secrets.Kubeconfig.Type || string(w.secrets.Kubeconfig.Data[foreignKey]) != "theirs" {
				t.Error("the Secret's own is gone")
			}
		}
		delete(w.secrets.CA.Data, "tls.key")
		s := w.secrets.Kubeconfig.DeepCopy()
		s.Data["value"] = []byte("x")
		w.secrets.Kubeconfig = w.stored(s)
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonCorrupted)
	})
	for name, test := range map[string]struct {
		change func(string) string
		says   string // empty: the text can be read
	}{
		"trailing ---":    {func(s string) string { return s + "---\n" }, ""},
		"a null document": {func(s string) string { return s + "---\n# nothing\n...\n" }, ""},
		"an alias":        {func(s string) string { return "x: &x " + endpointA + "\n" + strings.Replace(s, endpointA, "*x", 1) }, ""},
		"an anchor":       {func(s string) string { return strings.Replace(s, "server: ", "server: &x ", 1) }, ""},
		"a merge key": {func(s string) string {
			return "x: &x {disable-compression: true}\n" + strings.Replace(s, "    server:", "    <<: *x\n    server:", 1)
		}, ""},
		"a context by merge keys": {func(s string) string {
			return "x: &x {namespace: " + canary + "}\n" + strings.Replace(s, "- context:", "- context:\n    <<: [*x]", 1)
		}, ""},
		"a key twice": {func(s string) string {
			return strings.Replace(s, "    server:", "    server: https://other.test\n    server:", 1)
		}, ""},
		"a document of another": {func(s string) string { return s + "---\nfoo: " + canary + "\n" }, "several YAML documents"},
		"a key that is a list":  {func(s string) string { return s + "---\n? [a]\n: b\n" }, "several YAML documents"},
		"no YAML after it":      {func(s string) string { return s + "---\n[" }, "several YAML documents"},
	} {
		inBubble(t, "what client-go reads/"+name, func(t *testing.T, w *world) {
			marked(w)
			s := w.secrets.Kubeconfig.DeepCopy()
			regenerated := strings.Replace(string(s.Data["value"]), "    proxy-url: "+proxyA+"\n", "", 1)
			for _, text := range []string{string(s.Data["value"]), regenerated} { // as it is, and without our route
				s = w.secrets.Kubeconfig.DeepCopy()
				s.Data["value"] = []byte(test.change(text))
				was, err := clientcmd.Load(s.Data["value"])
				if err != nil {
					t.Fatal(err)
				}
				w.secrets.Kubeconfig = w.stored(s)
				w.wait(10 * time.Minute)
				is, err := clientcmd.Load(w.secrets.Kubeconfig.Data["value"])
				if err != nil {
					t.Fatal(err)
				}
				if test.says != "" {
					w.condition(metav1.ConditionFalse, provider.ReasonCorrupted)
					w.message(test.says)
				} else {
					w.condition(metav1.ConditionTrue, provider.ReasonReady)
					w.proxy(proxyA)
					if !bytes.Contains(w.secrets.Kubeconfig.Data["value"], []byte("12345678901234567890")) {
						t.Error("what is not client-go's is gone")
					}
					was.Clusters["c1"].ProxyURL = proxyA
				}
				if diff := cmp.Diff(was, is); diff != "" {
					t.Errorf("what client-go reads (-was +is):\n%s", diff)
				}
			}
		})
	}
	inBubble(t, "another's Secret corrupted", func(t *testing.T, w *world) {
		w.controlPlane()
		w.secrets.Kubeconfig.Data["value"] = []byte("x")
		w.annotate("proxy-url", proxyA)
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonCorrupted)
		if w.writes != 0 {
			t.Error("written")
		}
	})
	inBubble(t, "paused", func(t *testing.T, w *world) {
		marked(w)
		w.cluster.Paused = true
		w.controlPlane()
		if a := w.plan(); toJSON(a) != toJSON(provider.Action{}) {
			t.Errorf("got %s", toJSON(a))
		}
		w.cluster.Paused = false
		w.settle()
		w.proxy(proxyA)
	})
	inBubble(t, "deleted", func(t *testing.T, w *world) {
		marked(w)
		w.cluster.Deleting = true
		w.controlPlane()
		w.settle()
		w.proxy(proxyA)
		w.annotate("mode", "own")
		w.secrets.Kubeconfig = nil
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonDeleting)
		if w.secrets.Kubeconfig != nil {
			t.Error("made a Secret")
		}
	})
	inBubble(t, "settings broken", func(t *testing.T, w *world) {
		marked(w)
		for _, broken := range []func(){
			func() { w.annotate("proxy-url", "ftp://a.test") },
			func() { w.annotate("gateway", "http://gw.test:1") }, // beside proxy-url
			func() { delete(w.cluster.Annotations, provider.AnnotationGateway); w.annotate("mode", "x") },
			func() { delete(w.cluster.Annotations, provider.AnnotationMode); w.annotate("grace-period", "x") },
			func() { delete(w.cluster.Annotations, provider.AnnotationGrace); w.annotate("probe", "x") },
			func() { delete(w.cluster.Annotations, provider.AnnotationProbe); w.annotate("no-proxy", "10.0.0.0/99") },
			func() { delete(w.cluster.Annotations, provider.AnnotationNoProxy) },
			func() { w.annotate("proxy-url", "http://u:"+canary+"@a.test") },
			func() { w.annotate("proxy-url", proxyB); w.annotate("route-secret", "gone") },
			func() { w.route("gone", nil) },
			func() { w.route("gone", map[string]string{"proxy-url": "http://x"}) },
			func() {
				w.route("gone", map[string]string{"username": "u", "password": canary})
				w.secrets.Route.Labels = nil
			},
		} {
			broken()
			w.settle()
			w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
			if !strings.Contains(w.cluster.Condition.Message, provider.Prefix) {
				t.Errorf("got %s", w.cluster.Condition.Message)
			}
			time.Sleep(10 * time.Minute)
			w.controlPlane()
			w.settle()
			w.proxy(proxyA) // and not directly
		}
	})
	inBubble(t, "another manager", func(t *testing.T, w *world) {
		marked(w)
		w.config.Name = "other"
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonManagedByOther)
		w.proxy(proxyA)
	})
	inBubble(t, "no-proxy", func(t *testing.T, w *world) {
		marked(w)
		w.annotate("no-proxy", "192.0.2.0/24")
		w.settle()
		w.proxy("")
	})
	inBubble(t, "route taken away", func(t *testing.T, w *world) {
		marked(w)
		delete(w.cluster.Annotations, provider.AnnotationProxyURL)
		w.settle()
		w.proxy(proxyA) // not by accident
		w.annotate("proxy-url", "direct")
		w.settle()
		w.proxy("")
		w.kept()
	})
}
