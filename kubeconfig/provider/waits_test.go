package provider_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// TestSwitchThatWaits: while one Secret can't take the other's place, that one keeps its route, whoever
// drops it.
func TestSwitchThatWaits(t *testing.T) {
	drop := func(s *corev1.Secret, w *world) *corev1.Secret {
		direct := w.secrets.Kubeconfig.DeepCopy()
		w.controlPlane()
		value := w.secrets.Kubeconfig.Data[kubeconfig.SecretKey]
		w.secrets.Kubeconfig = direct
		s = s.DeepCopy()
		s.Data[kubeconfig.SecretKey] = value
		return w.stored(s)
	}
	for name, set := range map[string]func(w *world){
		"a bad name":           func(w *world) { w.annotate("secondary-name", "c1-kubeconfig") },
		"a name with a space":  func(w *world) { w.annotate("secondary-name", "a b") },
		"a name that is taken": func(w *world) { w.annotate("secondary-name", "c1-ca") },
		"a bad proxy":          func(w *world) { w.annotate("proxy-url", "ftp://a") },
		"no such Secret":       func(w *world) { w.annotate("route-secret", "missing") },
		"another's Secret": func(w *world) {
			w.secrets.Secondary = w.secrets.Kubeconfig.DeepCopy()
			w.secrets.Secondary.Name, w.secrets.Secondary.Annotations = "c1-proxied", nil
		},
	} {
		inBubble(t, "to secondary, "+name, func(t *testing.T, w *world) {
			decorated(w)
			w.annotate("mode", "secondary")
			set(w)
			w.settle()
			reason := provider.ReasonInvalidSettings
			if w.secrets.Secondary != nil {
				reason = provider.ReasonNotOurs
			}
			w.condition(metav1.ConditionFalse, reason)
			w.secrets.Kubeconfig = drop(w.secrets.Kubeconfig, w)
			w.settle()
			w.happened(provider.ReasonReapplied)
			w.proxy(proxyA)
			w.secrets.Kubeconfig = nil // and its owner makes it anew
			w.wait(time.Minute)
			w.controlPlane()
			w.wait(time.Minute)
			w.proxy(proxyA)
		})
	}
	for name, set := range map[string]func(w *world){
		"decorate, a bad proxy": func(w *world) { w.annotate("mode", "decorate"); w.annotate("proxy-url", "ftp://a") },
		"decorate, a proxy that is down": func(w *world) {
			w.annotate("mode", "decorate")
			w.annotate("proxy-url", proxyB)
			w.probe = down(proxyB)
		},
		"own, a proxy that is down": func(w *world) { w.annotate("mode", "own"); w.annotate("proxy-url", proxyB); w.probe = down(proxyB) },
		"own, no such Secret":       func(w *world) { w.annotate("mode", "own"); w.annotate("route-secret", "missing") },
		"rewrite, no server":        func(w *world) { w.annotate("mode", "rewrite") },
	} {
		inBubble(t, "from secondary to "+name, func(t *testing.T, w *world) {
			besideFirst(w)
			set(w)
			w.wait(time.Minute)
			if w.secrets.Secondary == nil {
				t.Fatal("the second Secret, the only one with a route, is gone")
			}
			w.secrets.Secondary = drop(w.secrets.Secondary, w)
			w.wait(time.Minute)
			if got := w.entry(w.secrets.Secondary).ProxyURL; got != proxyA {
				t.Errorf("the second Secret, the only one with a route, leads by %q", got)
			}
		})
	}
	inBubble(t, "the name of a second Secret that can't be", func(t *testing.T, w *world) {
		w.annotate("mode", "secondary")
		w.annotate("secondary-name", "a b")
		if s, err := provider.Resolve(w.cluster, w.config); err == nil || s.SecondaryName != "c1-proxied" {
			t.Errorf("got %q, %v, want the usual one, which may be there", s.SecondaryName, err)
		}
	})
	inBubble(t, "from secondary without a first Secret to own", func(t *testing.T, w *world) {
		w.annotate("mode", "secondary")
		w.annotate("proxy-url", proxyA)
		w.settle()
		w.annotate("mode", "own")
		w.annotate("proxy-url", proxyB)
		w.probe = down(proxyB)
		w.wait(time.Minute)
		w.proxy(proxyA)
		w.probe = down()
		w.wait(time.Minute)
		if w.proxy(proxyB); w.secrets.Secondary != nil {
			t.Error("the second Secret is left behind")
		}
	})
	inBubble(t, "a rival", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("mode", "secondary")
		w.annotate("secondary-name", "c1-kubeconfig")
		for range 3 {
			w.secrets.Kubeconfig = drop(w.secrets.Kubeconfig, w)
			w.settle()
		}
		w.condition(metav1.ConditionFalse, provider.ReasonRivalWriter)
	})
}

// TestMadeAnew: a Secret that was deleted once is made again, by whatever number of plans, and no rival is
// accused of it. One that is deleted again and again waits.
func TestMadeAnew(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		besideFirst(w)
		w.controlPlane() // whose credentials the second Secret follows
		w.settle()
		for _, want := range []string{provider.ReasonReady, provider.ReasonRivalWriter} {
			w.secrets.Secondary, w.crash = nil, true
			w.do(w.plan())
			w.settle()
			if c := w.cluster.Condition; c.Reason != want {
				t.Fatalf("got %s, want %s", toJSON(c), want)
			}
		}
		if w.secrets.Secondary != nil {
			t.Error("made at once for the second time")
		}
		w.wait(20 * time.Second)
		if w.secrets.Secondary == nil {
			t.Error("not made again")
		}
	})
}
