package provider_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const proxyC = "http://c.test:3128"

// A route that worked is what a new one falls back to, also within its own grace period.
func TestFallBackToHealthy(t *testing.T) {
	inBubble(t, "within the grace period of the first", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("proxy-url", proxyA)
		w.wait(time.Minute)
		w.phase(provider.StateGrace)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.proxy(proxyB)
		w.probe = down(proxyB)
		w.wait(2 * time.Minute)
		w.proxy(proxyA)
		w.phase(provider.StateFellBack)
	})
	inBubble(t, "a rewritten server is no way around a proxy", func(t *testing.T, w *world) {
		rewritten(w)
		delete(w.cluster.Annotations, provider.AnnotationProxyURL)
		w.settle()
		w.proxy(proxyA)
		w.condition(metav1.ConditionTrue, provider.ReasonKept)
		w.controlPlane() // another writer drops it
		w.settle()
		w.proxy(proxyA)
		w.annotate("proxy-url", "direct")
		w.wait(20 * time.Minute)
		w.proxy("")
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.proxy(proxyB)
		w.annotate("rollback", "")
		w.settle()
		if c := w.kubeconfig(); c.ProxyURL == "" {
			t.Errorf("a rollback leads directly to %s", c.Server)
		}
		delete(w.cluster.Annotations, provider.AnnotationRollback)
		w.settle()
		w.probe = down(proxyB)
		w.wait(5 * time.Minute)
		if c := w.kubeconfig(); c.ProxyURL == "" {
			t.Errorf("a fall-back leads directly to %s", c.Server)
		}
	})
	inBubble(t, "never directly", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("proxy-url", proxyA)
		w.settle()
		w.probe = down(proxyA)
		w.wait(30 * time.Minute)
		w.proxy(proxyA)
		w.condition(metav1.ConditionFalse, "TCPFailed")
	})
	inBubble(t, "from direct to what was before", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", "direct")
		w.settle()
		w.proxy("")
		w.probe = down("")
		w.wait(2 * time.Minute)
		w.proxy(proxyA)
	})
	inBubble(t, "past one that works no more", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.annotate("proxy-url", proxyC)
		w.settle()
		w.probe = down(proxyB, proxyC)
		w.wait(2 * time.Minute)
		w.proxy(proxyA)
	})
	inBubble(t, "the newest that works", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.annotate("proxy-url", proxyC)
		w.settle()
		w.probe = down(proxyC)
		w.wait(2 * time.Minute)
		w.proxy(proxyB)
	})
	inBubble(t, "rolled back within the grace period", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("proxy-url", proxyA)
		w.wait(time.Minute)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.annotate("rollback", "")
		w.settle()
		w.proxy(proxyA)
		w.condition(metav1.ConditionTrue, provider.ReasonRolledBack)
	})
	inBubble(t, "not rolled back to direct", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("rollback", "")
		w.settle()
		w.proxy(proxyA)
		w.condition(metav1.ConditionTrue, provider.ReasonNoPrevious)
	})
}

// A route that vanished from the configuration stays.
func TestRouteKept(t *testing.T) {
	keeps := func(w *world, s *corev1.Secret) {
		w.t.Helper()
		if got := w.entry(s).ProxyURL; got != proxyA {
			w.t.Fatalf("got proxy-url %q, want %s", got, proxyA)
		}
		w.condition(metav1.ConditionTrue, provider.ReasonKept)
		if m := w.cluster.Condition.Message; !strings.Contains(m, provider.AnnotationProxyURL+" to direct") || !strings.Contains(m, provider.AnnotationMode+" to off") {
			w.t.Errorf("got %q, want one that says how to have it direct", m)
		}
	}
	inBubble(t, "flags", func(t *testing.T, w *world) {
		w.controlPlane()
		w.config.Defaults.ProxyURL = proxyA
		w.wait(10 * time.Minute)
		w.config.Defaults = provider.Settings{}
		w.config.Results = map[string]provider.Result{}
		w.settle()
		keeps(w, w.secrets.Kubeconfig)
		w.controlPlane()
		w.wait(20 * time.Minute)
		keeps(w, w.secrets.Kubeconfig)
		w.probe = down(proxyA)
		w.wait(5 * time.Minute)
		w.proxy(proxyA)
		w.condition(metav1.ConditionFalse, "TCPFailed")
		if m := w.cluster.Condition.Message; !strings.Contains(m, "to direct") || strings.Contains(m, "..") || !strings.Contains(m, "Do something. No annotation or flag") {
			t.Errorf("got %q, want the advice, and how to have it direct, as sentences", m)
		}
		w.probe = down()
		w.config.Defaults.ProxyURL = proxyA
		w.wait(5 * time.Minute)
		w.condition(metav1.ConditionTrue, provider.ReasonReady)
	})
	inBubble(t, "a Namespace's annotations", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.cluster.NamespaceAnnotations = prefixed(map[string]string{"proxy-url": proxyA, "mode": "own"})
		w.wait(10 * time.Minute)
		w.cluster.NamespaceAnnotations, w.cluster.UID, w.cluster.Condition = nil, "uid-moved", nil
		w.settle()
		keeps(w, w.secrets.Kubeconfig)
		w.annotate("proxy-url", "direct")
		w.settle()
		w.proxy("")
	})
	inBubble(t, "the server of rewrite", func(t *testing.T, w *world) {
		w.controlPlane()
		w.cluster.NamespaceAnnotations = prefixed(map[string]string{"mode": "rewrite", "server": "gateway.tunnel.svc:6443"})
		w.wait(10 * time.Minute)
		w.cluster.NamespaceAnnotations = nil
		w.wait(10 * time.Minute)
		w.server("https://gateway.tunnel.svc:6443")
		w.condition(metav1.ConditionTrue, provider.ReasonKept)
		w.annotate("mode", "off")
		w.settle()
		w.server(endpointA)
	})
	inBubble(t, "a tunnel's gateway", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("gateway", "http://gw.test:3128")
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"username": "u", "password": canary, "gateway": "http://gw.test:3128"})
		w.wait(10 * time.Minute)
		before := w.kubeconfig()
		w.cluster.Annotations, w.secrets.Route = map[string]string{}, nil
		w.wait(10 * time.Minute)
		if got := w.kubeconfig(); got.ProxyURL != before.ProxyURL || got.Server != before.Server {
			t.Fatalf("got server %s", got.Server)
		}
		w.condition(metav1.ConditionTrue, provider.ReasonKept)
	})
	inBubble(t, "the mode secondary", func(t *testing.T, w *world) {
		w.controlPlane()
		w.cluster.NamespaceAnnotations = prefixed(map[string]string{"proxy-url": proxyA, "mode": "secondary"})
		w.wait(10 * time.Minute)
		w.cluster.NamespaceAnnotations = nil
		w.wait(10 * time.Minute)
		if w.secrets.Secondary == nil {
			t.Fatal("the second Secret is gone")
		}
		keeps(w, w.secrets.Secondary)
		w.annotate("mode", "decorate")
		w.settle()
		if w.secrets.Secondary != nil {
			t.Error("the mode was named, and the second Secret is there")
		}
	})
	inBubble(t, "and the mode is secondary", func(t *testing.T, w *world) {
		decorated(w)
		delete(w.cluster.Annotations, provider.AnnotationProxyURL)
		w.annotate("mode", "secondary")
		w.settle()
		keeps(w, w.secrets.Kubeconfig)
	})
}

// What the memory says of the route is believed only if it is what the provider wrote.
func TestRecordsChanged(t *testing.T) {
	direct, _ := json.Marshal(map[string]string{"server": endpointA, "endpoint": "192.0.2.10:6443"})
	foreign, _ := json.Marshal(map[string]string{"server": endpointA, "proxyURL": proxyC, "endpoint": "192.0.2.10:6443"})
	tamper := func(w *world, s **corev1.Secret, data map[string][]byte) {
		w.t.Helper()
		changed := (*s).DeepCopy()
		maps.Copy(changed.Data, data)
		*s = w.stored(changed)
	}
	for name, data := range map[string][]byte{"direct": direct, "another": foreign, "nothing": nil, "garbage": []byte("{")} {
		inBubble(t, "applied/"+name, func(t *testing.T, w *world) {
			decorated(w)
			tamper(w, w.memory(), map[string][]byte{provider.DataApplied: data})
			w.probe = down(proxyC)
			w.wait(time.Minute)
			w.proxy(proxyA)
			w.condition(metav1.ConditionTrue, provider.ReasonReady)
			w.controlPlane()
			w.settle()
			w.proxy(proxyA)
		})
		inBubble(t, "beside another's key/"+name, func(t *testing.T, w *world) {
			decorated(w)
			tamper(w, w.memory(), map[string][]byte{"another": []byte("x"), provider.DataApplied: data})
			w.controlPlane()
			w.settle()
			w.proxy(proxyA)
			if got := (*w.memory()).Data["another"]; string(got) != "x" {
				t.Errorf("another's key has %q", got)
			}
		})
		inBubble(t, "applied, and the kubeconfig is broken/"+name, func(t *testing.T, w *world) {
			decorated(w)
			tamper(w, w.memory(), map[string][]byte{provider.DataApplied: data})
			tamper(w, &w.secrets.Kubeconfig, map[string][]byte{"value": []byte("x")})
			w.settle()
			w.proxy(proxyA)
		})
		inBubble(t, "applied, all broken, and nothing configured/"+name, func(t *testing.T, w *world) {
			decorated(w)
			w.cluster.Annotations = map[string]string{}
			tamper(w, w.memory(), map[string][]byte{provider.DataApplied: data})
			tamper(w, &w.secrets.Kubeconfig, map[string][]byte{"value": []byte("x")})
			writes := w.writes
			w.settle()
			if w.condition(metav1.ConditionFalse, provider.ReasonCorrupted); w.writes > writes+1 || string(w.secrets.Kubeconfig.Data["value"]) != "x" {
				t.Error("a kubeconfig was made")
			}
		})
		inBubble(t, "applied, of a second Secret/"+name, func(t *testing.T, w *world) {
			w.controlPlane()
			w.annotate("mode", "secondary")
			w.annotate("proxy-url", proxyA)
			w.wait(10 * time.Minute)
			tamper(w, w.slot(provider.RecordsName("c1-proxied")), map[string][]byte{provider.DataApplied: data})
			w.probe = down(proxyA, proxyC) // nothing is switched to
			w.settle()
			if got := w.entry(w.secrets.Secondary).ProxyURL; got != proxyA {
				t.Errorf("got proxy-url %q", got)
			}
		})
		inBubble(t, "previous/"+name, func(t *testing.T, w *world) {
			decorated(w)
			w.annotate("proxy-url", proxyB)
			w.settle()
			list := []byte("[" + string(data) + "]")
			tamper(w, w.memory(), map[string][]byte{provider.DataPrevious: list})
			w.probe = down(proxyB)
			w.wait(2 * time.Minute)
			w.proxy(proxyB)
			w.annotate("rollback", "")
			w.wait(time.Minute)
			w.proxy(proxyB)
		})
	}
	inBubble(t, "a backup of a part", func(t *testing.T, w *world) {
		decorated(w)
		old := (*w.memory()).DeepCopy()
		w.annotate("proxy-url", proxyB)
		w.wait(20 * time.Minute)
		tamper(w, w.memory(), map[string][]byte{provider.DataApplied: old.Data[provider.DataApplied], provider.DataState: old.Data[provider.DataState]})
		a := w.plan()
		w.do(a)
		w.proxy(proxyB)
	})
}
