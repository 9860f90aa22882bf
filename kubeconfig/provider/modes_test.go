package provider_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig"
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
	w.wait(15 * time.Minute)
	w.phase(provider.PhaseReady)
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
	inBubble(t, "endpoint moved", func(t *testing.T, w *world) {
		marked(w)
		w.cluster.Endpoint.Host = "192.0.2.20"
		w.settle()
		w.server(endpointB)
		w.phase(provider.PhaseGrace)
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
		w.wait(time.Hour)
		w.server("https://chosen.test:6443")
		w.proxy(proxyA)
	})
	inBubble(t, "proxy password changed", func(t *testing.T, w *world) {
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"username": "u", "password": canary})
		marked(w)
		w.proxy("http://u:" + canary + "@a.test:3128")
		previous := w.secrets.Kubeconfig.Data[provider.DataPrevious]
		w.probe = down(canary)
		w.route("route", map[string]string{"username": "u", "password": "new+" + canary})
		w.probe = down("u:" + canary)
		w.settle()
		w.proxy("http://u:new+" + canary + "@a.test:3128")
		w.phase(provider.PhaseReady) // no grace period
		if !bytes.Equal(previous, w.secrets.Kubeconfig.Data[provider.DataPrevious]) {
			t.Error("the previous route is one with the old password")
		}
		w.kept()
	})
	inBubble(t, "proxy down", func(t *testing.T, w *world) {
		marked(w)
		w.probe = down(proxyA)
		writes := w.writes
		w.wait(time.Hour)
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
			func() { w.annotate("proxy-url", "http://u:"+canary+"@a.test") },
			func() { w.annotate("proxy-url", proxyB); w.annotate("route-secret", "gone") },
			func() { w.route("gone", nil) },
			func() { w.route("gone", map[string]string{"proxy-url": "http://x"}) },
			func() { w.secrets.Route.Labels = nil },
		} {
			broken()
			w.settle()
			w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
			if !strings.Contains(w.cluster.Condition.Message, provider.Prefix) {
				t.Errorf("got %s", w.cluster.Condition.Message)
			}
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
		w.proxy("")
		w.kept()
	})
}

func TestModes(t *testing.T) {
	inBubble(t, "own", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.secrets.CA = nil
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNoCA)
		w.secrets.CA = w.ca.secret()
		w.settle()
		s := w.secrets.Kubeconfig
		owner := s.OwnerReferences[0]
		if s.Type != corev1.SecretTypeOpaque || s.Labels[kubeconfig.ClusterNameLabel] != name || owner.Kind != "Cluster" || owner.UID != "uid-1" || owner.Controller != nil {
			t.Errorf("got %s", toJSON(s.ObjectMeta))
		}
		w.server(endpointA)
		w.cluster.Endpoint.Host = "192.0.2.20"
		w.settle()
		w.server(endpointB)
	})
	inBubble(t, "own adopts", func(t *testing.T, w *world) {
		w.controlPlane()
		w.cluster.HasControlPlane = false
		w.mark()
		w.settle()
		w.happened(provider.ReasonAdopted)
		w.kept()
		if s := w.secrets.Kubeconfig; s.Type != kubeconfig.SecretType || s.OwnerReferences[0].Kind != "KubeadmControlPlane" {
			t.Error("type or owner changed")
		}
		first := clientCertificate(t, w.secrets.Kubeconfig)
		time.Sleep(190 * 24 * time.Hour)
		w.settle()
		if clientCertificate(t, w.secrets.Kubeconfig).Equal(first) {
			t.Error("not rotated")
		}
		w.kept()
	})
	inBubble(t, "own and a user's", func(t *testing.T, w *world) {
		w.controlPlane()
		w.cluster.HasControlPlane = false
		w.secrets.Kubeconfig.Type = corev1.SecretTypeOpaque
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNotOurs)
		if w.writes != 0 {
			t.Fatal("written")
		}
		w.annotate("mode", "own")
		w.settle()
		w.happened(provider.ReasonAdopted)
	})
	inBubble(t, "decorate does not rotate", func(t *testing.T, w *world) {
		marked(w)
		first := clientCertificate(t, w.secrets.Kubeconfig)
		time.Sleep(300 * 24 * time.Hour)
		w.settle()
		if !clientCertificate(t, w.secrets.Kubeconfig).Equal(first) {
			t.Error("rotated")
		}
	})
	inBubble(t, "rewrite", func(t *testing.T, w *world) {
		marked(w)
		w.annotate("mode", "rewrite")
		w.annotate("proxy-url", "direct")
		w.annotate("server", "gateway.tunnel.svc:6443")
		w.settle()
		w.server("https://gateway.tunnel.svc:6443")
		w.proxy("")
		if got := w.kubeconfig().TLSServerName; got != "kubernetes.default.svc" {
			t.Errorf("got tls-server-name %q", got)
		}
		w.controlPlane() // keeps the server
		w.settle()
		w.cluster.Endpoint.Host = "192.0.2.20"
		w.settle()
		w.annotate("mode", "decorate")
		w.settle()
		w.server(endpointB)
		if got := w.kubeconfig().TLSServerName; got != "" {
			t.Errorf("got tls-server-name %q", got)
		}
	})
	inBubble(t, "tunnel", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("gateway", "http://gw.test:3128")
		w.annotate("route-secret", "route")
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
		w.route("route", map[string]string{"username": "u", "password": canary + "\n"})
		w.settle()
		w.server(endpointA)
		w.proxy("http://u:" + canary + "@gw.test:3128")
		w.annotate("tunnel-zone", "tunnel.test")
		w.settle()
		w.server("https://kubernetes.default.svc.c1.clusters.tunnel.test:443")
		w.annotate("proxy-url", "direct")
		delete(w.cluster.Annotations, provider.AnnotationGateway)
		w.settle()
		w.server(endpointA)
	})
	inBubble(t, "https proxy", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("proxy-url", "https://p.test:3129")
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"ca.crt": string(w.ca.cert), "tls.crt": "x", "tls.key": canary})
		w.settle()
		if value := string(w.secrets.Kubeconfig.Data["value"]); !strings.Contains(value, kubeconfig.ExtensionName) || strings.Contains(value, canary) {
			t.Error("the proxy's TLS is not in the extension, or the key is")
		}
	})
	inBubble(t, "off", func(t *testing.T, w *world) {
		marked(w)
		w.annotate("mode", "off")
		w.settle()
		w.proxy("")
		for key := range w.secrets.Kubeconfig.Data {
			if strings.HasPrefix(key, "causeway") {
				t.Errorf("the key %s is left", key)
			}
		}
		for key := range w.secrets.Kubeconfig.Annotations {
			if strings.HasPrefix(key, provider.Prefix) {
				t.Errorf("the annotation %s is left", key)
			}
		}
		w.kept()
	})
}

func TestSecondary(t *testing.T) {
	inBubble(t, "follows", func(t *testing.T, w *world) {
		w.controlPlane()
		w.mark()
		w.annotate("mode", "secondary")
		w.annotate("proxy-url", proxyA)
		before := w.secrets.Kubeconfig.ResourceVersion
		w.settle()
		s := w.secrets.Secondary
		if s.Name != "c1-proxied" || w.entry(s).ProxyURL != proxyA || s.OwnerReferences[0].Kind != "Cluster" {
			t.Fatalf("got %s", toJSON(s.ObjectMeta))
		}
		if w.secrets.Kubeconfig.ResourceVersion != before {
			t.Fatal("the first Secret was written")
		}
		w.controlPlane()
		probes := w.probes
		w.do(w.plan())
		if !clientCertificate(t, w.secrets.Secondary).Equal(clientCertificate(t, w.secrets.Kubeconfig)) || w.probes != probes {
			t.Error("the credentials did not follow")
		}
		w.annotate("mode", "off")
		w.settle()
		if w.secrets.Secondary != nil {
			t.Error("not deleted")
		}
	})
	inBubble(t, "alone", func(t *testing.T, w *world) {
		w.annotate("mode", "secondary")
		w.settle()
		if w.entry(w.secrets.Secondary).Server != endpointA {
			t.Error("not made of the CA")
		}
	})
	inBubble(t, "another's", func(t *testing.T, w *world) {
		w.controlPlane()
		w.secrets.Secondary = w.secrets.Kubeconfig.DeepCopy()
		w.secrets.Secondary.Name = "c1-proxied"
		w.annotate("mode", "secondary")
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNotOurs)
		w.annotate("mode", "off")
		w.settle()
		if w.secrets.Secondary == nil || w.writes > 0 {
			t.Error("deleted or written")
		}
	})
	inBubble(t, "after decorate", func(t *testing.T, w *world) {
		marked(w)
		w.annotate("mode", "secondary")
		w.settle()
		w.happened(provider.ReasonHandedBack)
		w.proxy("")
		if w.entry(w.secrets.Secondary).ProxyURL != proxyA {
			t.Error("the second Secret has no route")
		}
	})
}
