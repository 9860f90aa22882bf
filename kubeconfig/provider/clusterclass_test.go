package provider_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// A ClusterClass makes the control plane later: the Secret is left to that.
func TestClusterClass(t *testing.T) {
	inBubble(t, "waits for its control plane", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane, w.cluster.HasTopology = false, true
		w.annotate("proxy-url", proxyA)
		w.settle()
		if w.condition(metav1.ConditionFalse, provider.ReasonNoControlPlane); w.writes != 0 {
			t.Fatal("written")
		}
		w.cluster.HasControlPlane = true
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNoSecret)
		w.controlPlane()
		w.settle()
		w.proxy(proxyA)
	})
	inBubble(t, "is asked for", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane, w.cluster.HasTopology = false, true
		w.annotate("mode", "own")
		w.settle()
		w.proxy("")
	})
}

// What the provider made it goes on rotating, until another manager has it.
func TestRotatesItsOwn(t *testing.T) {
	for _, by := range []func(*world){
		func(w *world) { w.cluster.HasControlPlane = true },
		func(w *world) { w.cluster.HasTopology = true },
		func(w *world) { w.annotate("mode", "decorate") },
		func(w *world) { w.annotate("mode", "rewrite"); w.annotate("server", "gateway.tunnel.svc:6443") },
	} {
		inBubble(t, "", func(t *testing.T, w *world) {
			w.cluster.HasControlPlane = false
			w.settle()
			by(w)
			w.settle()
			first := clientCertificate(t, w.secrets.Kubeconfig)
			time.Sleep(190 * 24 * time.Hour)
			w.settle()
			second := clientCertificate(t, w.secrets.Kubeconfig)
			if second.Equal(first) {
				t.Fatal("not rotated")
			}
			s := w.secrets.Kubeconfig.DeepCopy()
			s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "kcp", UID: "uid-kcp"})
			w.secrets.Kubeconfig = w.stored(s)
			time.Sleep(190 * 24 * time.Hour)
			w.settle()
			if !clientCertificate(t, w.secrets.Kubeconfig).Equal(second) {
				t.Error("rotated, and the control plane has it")
			}
		})
	}
	inBubble(t, "and follows the CA", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.settle()
		w.cluster.HasControlPlane = true
		w.ca = newAuthority(t)
		w.secrets.CA = w.ca.secret()
		w.settle()
		if _, err := clientCertificate(t, w.secrets.Kubeconfig).Verify(newPool(w.ca.cert)); err != nil {
			t.Error(err)
		}
	})
}
