package provider_test

import (
	"bytes"
	"reflect"
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
	memory := *w.slot(provider.RecordsName(written.Name))
	before := []*corev1.Secret{old.DeepCopy(), written.DeepCopy(), memory.DeepCopy()}
	value, ok := provider.RestoreRoute(old, written, memory, w.config)
	if !reflect.DeepEqual(before, []*corev1.Secret{old, written, memory}) {
		w.t.Fatal("RestoreRoute wrote to its arguments")
	}
	if !ok {
		if value != nil {
			w.t.Fatal("got a value, and nothing to do")
		}
		return written
	}
	admitted := written.DeepCopy()
	admitted.Data[kubeconfig.SecretKey] = value
	if again, ok := provider.RestoreRoute(old, admitted, memory, w.config); ok {
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

// What RestoreRoute makes of a kubeconfig without a route: want is its proxy.
func TestRestoreRouteOf(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		const full, bare = "http://u:" + canary + "@a.test:3128", "http://a.test:3128"
		w.controlPlane()
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"proxy-url": "http://a.test:3128", "username": "u", "password": canary})
		w.wait(20 * time.Minute)
		w.proxy(full)
		edit := func(s *corev1.Secret, change func(s *corev1.Secret)) *corev1.Secret {
			s = s.DeepCopy()
			change(s)
			return s
		}
		old, memory := w.secrets.Kubeconfig, *w.memory()
		w.controlPlane()
		regenerated := w.secrets.Kubeconfig
		lost := edit(old, func(s *corev1.Secret) { s.Data = regenerated.Data })
		anew := edit(regenerated, func(s *corev1.Secret) { s.Annotations = nil })
		unmanaged := func(s *corev1.Secret) { delete(s.Annotations, provider.AnnotationManager) }
		others := func(s *corev1.Secret) { s.Annotations[provider.AnnotationManager] = "other" }
		revision := func(n string) func(s *corev1.Secret) {
			return func(s *corev1.Secret) { s.Annotations[provider.AnnotationRecords] = "c1-kubeconfig-route-records/" + n }
		}
		released := edit(memory, func(s *corev1.Secret) { s.Annotations[provider.AnnotationPhase] = "HandedBack" })
		value := func(text string) func(s *corev1.Secret) {
			return func(s *corev1.Secret) { s.Data = map[string][]byte{kubeconfig.SecretKey: []byte(text)} }
		}
		w.secrets.Kubeconfig = w.stored(old)
		w.older()
		before := w.secrets.Kubeconfig
		for name, tt := range map[string]struct {
			old, written, memory *corev1.Secret
			want                 string
		}{
			"regenerated":                    {old, regenerated, memory, full},
			"without annotations":            {old, anew, memory, full},
			"created anew":                   {nil, anew, memory, bare},
			"created anew, annotated":        {nil, regenerated, memory, bare},
			"lost before":                    {lost, regenerated, memory, bare},
			"lost before, no value":          {edit(old, value("")), regenerated, memory, bare},
			"a cache that is late":           {edit(old, revision("2")), edit(regenerated, revision("2")), memory, full},
			"a cache without it":             {old, regenerated, nil, full},
			"that, without annotations":      {old, anew, nil, full},
			"a write with a route of before": {edit(old, revision("2")), edit(regenerated, revision("1")), memory, full},
			"records of before":              {before, edit(before, func(s *corev1.Secret) { s.Data["value"] = regenerated.Data["value"] }), nil, full},
			"those, wiped":                   {before, edit(before, func(s *corev1.Secret) { s.Data = regenerated.Data }), nil, full},

			"the provider's own":              {old, edit(regenerated, revision("2")), memory, ""},
			"the provider's own, the first":   {edit(anew, func(*corev1.Secret) {}), regenerated, nil, ""},
			"made":                            {nil, regenerated, nil, ""},
			"an earlier version's own":        {before, edit(regenerated, func(s *corev1.Secret) { s.Data[provider.DataApplied] = []byte("{}") }), memory, ""},
			"another Cluster":                 {nil, anew, nil, ""},
			"handed back":                     {old, anew, released, ""},
			"handed back, a late cache":       {old, edit(anew, func(s *corev1.Secret) { s.Annotations = map[string]string{provider.AnnotationRecords: "x/2"} }), memory, ""},
			"handed back, records of before":  {before, anew, nil, ""},
			"another's":                       {edit(old, others), edit(regenerated, others), edit(memory, others), ""},
			"taken by another":                {old, edit(regenerated, others), memory, ""},
			"not adopted":                     {edit(anew, func(*corev1.Secret) {}), edit(regenerated, unmanaged), nil, ""},
			"a memory that can't be read":     {nil, anew, edit(memory, func(s *corev1.Secret) { s.Data[provider.DataApplied] = []byte("{") }), ""},
			"a kubeconfig that can't be read": {old, edit(regenerated, value("clusters: ["+canary)), memory, ""},
			"no value":                        {old, edit(regenerated, func(s *corev1.Secret) { s.Data = nil }), memory, ""},
		} {
			value, ok := provider.RestoreRoute(tt.old, tt.written, tt.memory, w.config)
			if ok != (tt.want != "") || ok && w.entry(&corev1.Secret{Data: map[string][]byte{"value": value}}).ProxyURL != tt.want {
				t.Errorf("%s: got %t, %s, want %q", name, ok, value, tt.want)
			}
		}
		if value, ok := provider.RestoreRoute(old, old, memory, w.config); ok {
			t.Errorf("the same: got %s", value)
		}
	})
}
