package provider_test

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const (
	proxyA = "http://a.test:3128"
	proxyB = "http://b.test:3128"
)

func inBubble(t *testing.T, name string, test func(*testing.T, *world)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
	})
}

// decorated is a world whose Secret has the route by proxyA.
func decorated(w *world) {
	w.t.Helper()
	w.controlPlane()
	w.annotate("proxy-url", proxyA)
	w.wait(10 * time.Minute)
	w.proxy(proxyA)
	w.phase(provider.StateReady)
	w.condition(metav1.ConditionTrue, provider.ReasonReady)
}

// rewritten is one whose Secret has another server, too.
func rewritten(w *world) {
	w.t.Helper()
	w.controlPlane()
	w.annotate("mode", "rewrite")
	w.annotate("server", "gw.test:6443")
	w.annotate("proxy-url", proxyA)
	w.wait(20 * time.Minute)
	w.proxy(proxyA)
}

// besideFirst is a world whose second Secret has the route by proxyA.
func besideFirst(w *world) {
	w.t.Helper()
	w.controlPlane()
	w.annotate("mode", "secondary")
	w.annotate("proxy-url", proxyA)
	w.settle()
}

func TestSwitch(t *testing.T) {
	inBubble(t, "first decoration", func(t *testing.T, w *world) {
		w.controlPlane()
		w.settle()
		if w.writes != 0 {
			t.Fatal("written without anything configured")
		}
		w.annotate("proxy-url", proxyA)
		w.settle()
		w.phase(provider.StateGrace)
		w.proxy(proxyA)
		w.condition(metav1.ConditionTrue, provider.ReasonReady)
	})
	inBubble(t, "first decoration fails", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("proxy-url", proxyA)
		w.probe = down(proxyA)
		w.wait(10 * time.Minute)
		if w.writes != 0 {
			t.Fatal("written though the probe failed")
		}
		w.condition(metav1.ConditionFalse, "TCPFailed")
		w.probe = down("")
		w.wait(time.Minute)
		w.proxy(proxyA)
	})
	inBubble(t, "regenerated", func(t *testing.T, w *world) {
		decorated(w)
		w.probe = down(proxyA)
		for range 3 {
			time.Sleep(10 * time.Minute)
			probes := w.probes
			w.controlPlane()
			a := w.plan()
			if a.Update == nil || w.probes != probes {
				t.Fatal("not written again at once")
			}
			w.do(a)
			w.proxy(proxyA)
		}
	})
	inBubble(t, "another route", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.probe = down(proxyB)
		w.settle()
		w.proxy(proxyA)
		w.phase(provider.StateProbing)
		w.condition(metav1.ConditionFalse, "TCPFailed")
		w.controlPlane() // regenerates meanwhile
		w.settle()
		w.proxy(proxyA)
		w.probe = down()
		w.wait(time.Minute)
		w.proxy(proxyB)
		w.phase(provider.StateGrace)
		w.wait(10 * time.Minute)
		w.phase(provider.StateReady)
		if len((*w.memory()).Data[provider.DataPrevious]) == 0 {
			t.Error("the previous route is not kept")
		}
	})
	inBubble(t, "falls back", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.proxy(proxyB)
		w.probe = down(proxyA, proxyB)
		w.wait(time.Minute)
		w.proxy(proxyB) // nothing is better
		w.condition(metav1.ConditionFalse, "TCPFailed")
		w.probe = down(proxyB)
		w.wait(time.Minute)
		w.proxy(proxyA)
		w.phase(provider.StateFellBack)
		w.condition(metav1.ConditionFalse, provider.ReasonFellBack)
		if len((*w.memory()).Data[provider.DataPrevious]) > 0 {
			t.Error("a route that failed is kept as one to go back to")
		}
		w.probe = down()
		w.wait(8 * time.Minute)
		w.proxy(proxyA) // held off
		w.wait(2 * time.Minute)
		w.proxy(proxyB)
		w.probe = down(proxyB)
		w.wait(time.Minute)
		w.proxy(proxyA)
		w.probe = down()
		w.wait(18 * time.Minute)
		w.proxy(proxyA) // held off twice as long
		w.wait(2 * time.Minute)
		w.proxy(proxyB)
		w.wait(10 * time.Minute)
		w.phase(provider.StateReady)
		w.condition(metav1.ConditionTrue, provider.ReasonReady)
	})
	inBubble(t, "another route within the grace period", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.annotate("proxy-url", "http://c.test:3128")
		w.settle()
		w.proxy("http://c.test:3128")
		w.probe = down("c.test", proxyB)
		w.wait(time.Minute)
		w.proxy(proxyA) // the last one that had proved itself
	})
	inBubble(t, "fails once", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.probe = down(proxyB)
		time.Sleep(10 * time.Second)
		w.settle()
		w.probe = down()
		w.wait(time.Minute)
		w.proxy(proxyB)
		w.phase(provider.StateGrace)
	})
	inBubble(t, "falls back, and is configured otherwise", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.probe = down(proxyB)
		w.wait(time.Minute)
		w.phase(provider.StateFellBack)
		w.annotate("proxy-url", proxyA)
		w.settle()
		w.phase(provider.StateReady)
		w.condition(metav1.ConditionTrue, provider.ReasonReady)
	})
	inBubble(t, "rolled back", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.wait(10 * time.Minute)
		w.proxy(proxyB)
		w.annotate("rollback", "true")
		w.settle()
		w.proxy(proxyA)
		w.phase(provider.StateRolledBack)
		w.condition(metav1.ConditionTrue, provider.ReasonRolledBack)
		w.controlPlane()
		w.wait(20 * time.Minute)
		w.proxy(proxyA)
		delete(w.cluster.Annotations, provider.AnnotationRollback)
		w.settle()
		w.proxy(proxyB)
		w.phase(provider.StateGrace)
	})
	inBubble(t, "nothing to roll back to", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("rollback", "true")
		w.settle()
		w.condition(metav1.ConditionTrue, provider.ReasonNoPrevious)
	})
	inBubble(t, "no probes", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("proxy-url", proxyA)
		w.annotate("probe", "off")
		w.settle()
		if w.proxy(proxyA); w.probes != 0 {
			t.Error("probed")
		}
		w.phase(provider.StateReady)
		w.condition(metav1.ConditionUnknown, provider.ReasonNotProbed)
	})
}

func TestOwn(t *testing.T) {
	inBubble(t, "created and rotated", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.annotate("proxy-url", proxyA)
		w.settle()
		w.proxy(proxyA)
		first := clientCertificate(t, w.secrets.Kubeconfig)
		time.Sleep(170 * 24 * time.Hour)
		w.settle()
		if !clientCertificate(t, w.secrets.Kubeconfig).Equal(first) {
			t.Error("rotated too early")
		}
		time.Sleep(15 * 24 * time.Hour)
		w.settle()
		if clientCertificate(t, w.secrets.Kubeconfig).Equal(first) {
			t.Error("not rotated")
		}
		w.proxy(proxyA)
	})
	inBubble(t, "by the plan's time", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		cluster, secrets, config := w.snapshot()
		config.Now = time.Now().Add(400 * 24 * time.Hour).Truncate(time.Second)
		action, err := provider.Plan(cluster, secrets, config)
		if err != nil || action.Create == nil {
			t.Fatalf("got %+v, %v", action.Condition, err)
		}
		if got, want := clientCertificate(t, action.Create).NotAfter, config.Now.Add(365*24*time.Hour); !got.Equal(want) {
			t.Errorf("the certificate ends at %v, want %v", got, want)
		}
	})
}
