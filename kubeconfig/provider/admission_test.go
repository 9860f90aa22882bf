package provider_test

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// admit is what a webhook makes of a write.
func (w *world) admit(old, written *corev1.Secret) *corev1.Secret {
	w.t.Helper()
	before := []*corev1.Secret{old.DeepCopy(), written.DeepCopy()}
	value, ok := provider.RestoreRoute(old, written, w.config)
	if diff := cmp.Diff(before, []*corev1.Secret{old, written}); diff != "" {
		w.t.Fatalf("RestoreRoute wrote to its arguments: %s", diff)
	}
	if !ok {
		if value != nil {
			w.t.Fatal("got a value, and nothing to do")
		}
		return written
	}
	admitted := written.DeepCopy()
	admitted.Data[kubeconfig.SecretKey] = value
	if again, ok := provider.RestoreRoute(old, admitted, w.config); ok {
		w.t.Fatalf("a second call has something to do: %d bytes", len(again))
	}
	return admitted
}

// regenerateAdmitted is Cluster API's regeneration with a webhook; the result is
// what it wrote without one.
func (w *world) regenerateAdmitted() (written *corev1.Secret) {
	w.t.Helper()
	old := w.secrets.Kubeconfig
	w.controlPlane()
	written = w.secrets.Kubeconfig
	w.secrets.Kubeconfig = w.stored(w.admit(old, written))
	return written
}

// A regeneration with the webhook leaves what the provider makes of one without it,
// and nothing for the provider to do.
func TestRestoreRoute(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"decorate": decorated,
		"marked":   marked,
		"grace": func(w *world) {
			decorated(w)
			w.annotate("proxy-url", proxyB)
			w.settle()
			w.phase(provider.StateGrace)
		},
		"fell back": func(w *world) {
			decorated(w)
			w.annotate("proxy-url", proxyB)
			w.settle()
			w.probe = down("b.test")
			w.wait(2 * time.Minute)
			w.phase(provider.StateFellBack)
		},
		"rolled back": func(w *world) {
			decorated(w)
			w.annotate("proxy-url", proxyB)
			w.settle()
			w.annotate("rollback", "")
			w.settle()
			w.phase(provider.StateRolledBack)
		},
		"rewrite": func(w *world) {
			decorated(w)
			w.annotate("mode", "rewrite")
			w.annotate("server", "tunnel.svc:6443")
			w.wait(12 * time.Minute)
			w.server("https://tunnel.svc:6443")
		},
		"own": func(w *world) {
			w.cluster.HasControlPlane = false
			w.annotate("proxy-url", proxyA)
			w.wait(12 * time.Minute)
			w.proxy(proxyA)
		},
		"another server": func(w *world) {
			decorated(w)
			s := w.secrets.Kubeconfig.DeepCopy()
			s.Data[kubeconfig.SecretKey] = bytes.Replace(s.Data[kubeconfig.SecretKey], []byte(endpointA), []byte("https://chosen.test:6443"), 1)
			w.secrets.Kubeconfig = w.stored(w.admit(w.secrets.Kubeconfig, s))
			w.wait(12 * time.Minute)
			w.server("https://chosen.test:6443")
		},
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			prepare(w)
			want := *w.kubeconfig()
			written := w.regenerateAdmitted()
			got := w.secrets.Kubeconfig
			want.CertificateAuthorityData = w.ca.cert
			if diff := cmp.Diff(&want, w.kubeconfig()); diff != "" {
				t.Errorf("the entry is another one: %s", diff)
			}
			if !clientCertificate(t, got).Equal(clientCertificate(t, written)) {
				t.Error("the credentials are not those that were written")
			}
			writes := w.writes
			w.settle()
			if w.writes != writes || len(w.events) > 0 {
				t.Errorf("got %d writes and %s, want none", w.writes-writes, toJSON(w.events))
			}
			w.secrets.Kubeconfig = w.stored(written)
			w.settle()
			if without := w.secrets.Kubeconfig.Data; !cmp.Equal(got.Data[kubeconfig.SecretKey], without[kubeconfig.SecretKey]) {
				t.Errorf("got\n%s\nof the webhook, and\n%s\nof the provider", got.Data[kubeconfig.SecretKey], without[kubeconfig.SecretKey])
			}
		})
	}
}

// What RestoreRoute leaves as it is.
func TestRestoreRouteNothing(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		marked(w)
		old := w.secrets.Kubeconfig
		w.controlPlane()
		regenerated := w.secrets.Kubeconfig
		if w.admit(old, regenerated) == regenerated {
			t.Fatal("the regenerated Secret is left as it is")
		}
		w.secrets.Kubeconfig = w.stored(old)
		w.annotate("proxy-url", proxyB)
		w.settle()
		switched := w.secrets.Kubeconfig
		w.proxy(proxyB)
		edit := func(s *corev1.Secret, change func(s *corev1.Secret)) *corev1.Secret {
			s = s.DeepCopy()
			change(s)
			return s
		}
		unmanaged := func(s *corev1.Secret) { delete(s.Annotations, provider.AnnotationManager) }
		others := func(s *corev1.Secret) { s.Annotations[provider.AnnotationManager] = "other" }
		anew := func(s *corev1.Secret) {
			maps.DeleteFunc(s.Data, func(key string, _ []byte) bool { return key != kubeconfig.SecretKey })
			s.Annotations = nil
		}
		for name, tt := range map[string]struct{ old, written *corev1.Secret }{
			"created":                 {nil, regenerated},
			"created anew":            {nil, edit(regenerated, anew)},
			"replaced":                {old, edit(regenerated, anew)},
			"adopted":                 {edit(old, unmanaged), regenerated},
			"handed back":             {old, edit(regenerated, unmanaged)},
			"another's":               {edit(old, others), edit(regenerated, others)},
			"the same":                {old, old},
			"switched":                {old, edit(switched, func(s *corev1.Secret) { s.Data[kubeconfig.SecretKey] = regenerated.Data[kubeconfig.SecretKey] })},
			"records lost":            {old, edit(regenerated, func(s *corev1.Secret) { delete(s.Data, provider.DataApplied) })},
			"records that no one has": {edit(old, anew), edit(regenerated, anew)},
			"can't be read":           {old, edit(regenerated, func(s *corev1.Secret) { s.Data[kubeconfig.SecretKey] = []byte("clusters: [" + canary) })},
			"no value":                {old, edit(regenerated, func(s *corev1.Secret) { delete(s.Data, kubeconfig.SecretKey) })},
			"no record of a route": {
				edit(old, func(s *corev1.Secret) { delete(s.Data, provider.DataApplied) }),
				edit(regenerated, func(s *corev1.Secret) { delete(s.Data, provider.DataApplied) }),
			},
			"a record that can't be read": {
				edit(old, func(s *corev1.Secret) { s.Data[provider.DataApplied] = []byte("{") }),
				edit(regenerated, func(s *corev1.Secret) { s.Data[provider.DataApplied] = []byte("{") }),
			},
		} {
			if w.admit(tt.old, tt.written) != tt.written {
				t.Errorf("%s: got another kubeconfig, want it left as it is", name)
			}
		}
	})
}
