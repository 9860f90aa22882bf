package provider_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// rivals write <cluster>-kubeconfig as others do: with the value of before the route, and what
// they leave of all else.
var rivals = map[string]func(w *world, value []byte){
	"Kamaji": func(w *world, value []byte) { w.rewrite("kamaji", value, nil) },
	"vcluster": func(w *world, value []byte) {
		w.rewrite("vcluster", value, func(s *corev1.Secret) { s.Annotations = nil })
	},
	"capz": func(w *world, value []byte) {
		w.rewrite("capz-manager", value, func(s *corev1.Secret) { s.OwnerReferences = nil })
	},
	"External Secrets": func(w *world, value []byte) {
		w.rewrite("external-secrets", value, func(s *corev1.Secret) {
			s.Annotations = map[string]string{"reconcile.external-secrets.io/data-hash": "x"}
		})
	},
	"Argo CD": func(w *world, value []byte) { // Replace=true
		s := w.secrets.Kubeconfig
		w.secrets.Kubeconfig = nil
		w.settle()
		w.secrets.Kubeconfig = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: s.Labels}, Type: s.Type}
		w.rewrite("argocd-controller", value, nil)
	},
}

// rewrite stores data with the value only.
func (w *world) rewrite(manager string, value []byte, change func(*corev1.Secret)) {
	w.t.Helper()
	s := w.secrets.Kubeconfig.DeepCopy()
	s.UID, s.Data = "", map[string][]byte{"value": value}
	now := metav1.NewTime(time.Now())
	s.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Operation: "Update", Time: &metav1.Time{}, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{".":{},"f:value":{}}}`)}},
		{Manager: manager, Operation: "Update", Time: &now, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{".":{},"f:value":{}},"f:type":{}}`)}},
	}
	if change != nil {
		change(s)
	}
	w.secrets.Kubeconfig = w.stored(s)
}

// Whatever others write, a route that was accepted is there again, while its proxy is down and
// while nothing names it; and a war costs little.
func TestRivals(t *testing.T) {
	for rival, write := range rivals {
		inBubble(t, rival, func(t *testing.T, w *world) {
			w.controlPlane()
			value := w.secrets.Kubeconfig.Data["value"]
			decorated(w)
			w.probe = down(proxyA)
			write(w, value)
			w.settle()
			w.proxy(proxyA)
			w.wait(20 * time.Minute)
			w.probe = down()
			delete(w.cluster.Annotations, provider.AnnotationProxyURL)
			w.wait(time.Minute)
			write(w, value)
			w.settle()
			w.proxy(proxyA)
			w.wait(20 * time.Minute)
			w.condition(metav1.ConditionTrue, provider.ReasonKept)

			writes, remembered, began := w.writes, w.remembered, time.Now()
			for time.Since(began) < time.Hour { // it sees each of our writes
				if w.entry(w.secrets.Kubeconfig).ProxyURL != "" {
					write(w, value)
				}
				a := w.plan()
				if w.do(a) {
					continue
				}
				if most := 1 + int(time.Since(began)/(10*time.Second)); w.writes-writes > most {
					t.Fatalf("got %d writes in %v, want %d at most", w.writes-writes, time.Since(began), most)
				}
				w.condition(metav1.ConditionFalse, provider.ReasonRivalWriter)
				if manager := w.secrets.Kubeconfig.ManagedFields[1].Manager; !strings.HasPrefix(w.cluster.Condition.Message, manager+" writes the Secret") {
					t.Fatalf("got %q, want the name %s", w.cluster.Condition.Message, manager)
				}
				time.Sleep(a.After)
			}
			if n := max(w.writes-writes, w.remembered-remembered); n < 10 || n > 60 {
				t.Errorf("got %d writes in an hour", n)
			}
			w.wait(20 * time.Minute) // it is gone
			w.proxy(proxyA)
			w.condition(metav1.ConditionTrue, provider.ReasonKept)
			write(w, value)
			w.settle()
			w.proxy(proxyA)
		})
	}
	inBubble(t, "annotations only", func(t *testing.T, w *world) {
		decorated(w)
		writes := w.writes
		for range 360 {
			w.rewrite("rival", w.secrets.Kubeconfig.Data["value"], func(s *corev1.Secret) { s.Annotations = nil })
			w.settle()
			time.Sleep(10 * time.Second)
		}
		if w.condition(metav1.ConditionTrue, provider.ReasonReady); w.writes-writes > 7 {
			t.Errorf("got %d writes in an hour, want 7 at most", w.writes-writes)
		}
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.proxy(proxyB)
		w.annotate("mode", "off")
		w.settle()
		w.proxy("")
	})
	inBubble(t, "a Secret of the provider's", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.annotate("proxy-url", proxyA)
		w.settle()
		delete(w.cluster.Annotations, provider.AnnotationProxyURL)
		w.secrets.Kubeconfig = nil
		w.settle()
		w.proxy(proxyA)
		w.secrets.Kubeconfig = nil
		if w.settle(); w.secrets.Kubeconfig != nil {
			t.Error("made anew at once, again")
		}
		w.condition(metav1.ConditionFalse, provider.ReasonRivalWriter)
		w.wait(10 * time.Second)
		w.proxy(proxyA)
	})
}

// What the memory is ahead of after a crash, the next plan makes good.
func TestCrash(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		want   string
	}{
		"the first route":   {func(w *world) { w.controlPlane(); w.annotate("proxy-url", proxyA) }, proxyA},
		"another route":     {func(w *world) { decorated(w); w.annotate("proxy-url", proxyB) }, proxyB},
		"direct":            {func(w *world) { decorated(w); w.annotate("proxy-url", "direct") }, ""},
		"handed back":       {func(w *world) { decorated(w); w.annotate("mode", "off") }, ""},
		"made":              {func(w *world) { w.cluster.HasControlPlane = false; w.annotate("proxy-url", proxyA) }, proxyA},
		"records of before": {func(w *world) { decorated(w); w.older(); w.controlPlane() }, proxyA},
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			tt.change(w)
			w.crash = true
			w.settle()
			if w.crash {
				t.Fatal("no memory was written")
			}
			w.wait(20 * time.Minute)
			w.proxy(tt.want)
		})
	}
}

// A repair is counted before it is made, so that a rival is not answered again and again while no
// memory can be written. One that was counted and not made is made at once.
func TestRepairCounted(t *testing.T) {
	inBubble(t, "no memory", func(t *testing.T, w *world) {
		decorated(w)
		w.forgetful = true
		writes := w.writes
		for range 10 {
			w.controlPlane()
			w.do(w.plan())
			time.Sleep(time.Second)
		}
		if n := w.writes - writes; n > 1 {
			t.Errorf("got %d writes in ten seconds, want 1 at most", n)
		}
	})
	inBubble(t, "crash", func(t *testing.T, w *world) {
		decorated(w)
		w.controlPlane()
		w.crash = true
		for range 3 {
			w.do(w.plan())
		}
		if w.proxy(proxyA); w.crash {
			t.Error("the repair was not counted before it was made")
		}
		w.controlPlane()
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonRivalWriter)
	})
}

// older puts the memory where earlier versions had it.
func (w *world) older() {
	m := *w.memory()
	*w.memory() = nil
	s := w.secrets.Kubeconfig.DeepCopy()
	delete(s.Annotations, provider.AnnotationRecords)
	maps.Copy(s.Data, m.Data)
	w.secrets.Kubeconfig = w.stored(s)
}

// The records of an earlier version are taken over, also those that it has written meanwhile, and
// after this version it finds the route.
func TestRecordsOfBefore(t *testing.T) {
	inBubble(t, "upgrade", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("proxy-url", proxyB)
		w.wait(20 * time.Minute)
		w.older()
		w.controlPlane()
		w.cluster.Annotations = map[string]string{}
		w.settle()
		w.proxy(proxyB)
		if got := slices.Sorted(maps.Keys(w.secrets.Kubeconfig.Data)); !slices.Equal(got, []string{"value"}) {
			t.Errorf("got the keys %q, want the value only", got)
		}
		if got, want := w.secrets.Kubeconfig.Annotations[provider.AnnotationRecords], "c1-kubeconfig-route-records/1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		w.annotate("rollback", "")
		w.settle()
		w.proxy(proxyA)
		delete(w.cluster.Annotations, provider.AnnotationRollback)
		w.annotate("mode", "off")
		w.settle()
		w.proxy("")
	})
	inBubble(t, "and back, and again", func(t *testing.T, w *world) {
		decorated(w)
		memory := (*w.memory()).DeepCopy()
		w.annotate("proxy-url", proxyB)
		w.wait(20 * time.Minute)
		w.older()
		*w.memory() = memory // what it does not know
		w.cluster.Annotations = map[string]string{}
		w.controlPlane()
		w.settle()
		w.proxy(proxyB)
	})
	inBubble(t, "made by the provider", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.annotate("proxy-url", proxyA)
		w.settle()
		made := string(w.secrets.Kubeconfig.Data[provider.DataState])
		w.older()
		w.settle()
		if got := string(w.secrets.Kubeconfig.Data[provider.DataState]); got != made || !strings.Contains(got, `"created":true`) {
			t.Errorf("got %q, want %q", got, made)
		}
		w.annotate("mode", "off")
		w.settle()
		w.proxy("")
	})
}

// A memory is the Cluster's by its owner. What a restore has left of one is taken over.
func TestMemoryOwner(t *testing.T) {
	inBubble(t, "another's", func(t *testing.T, w *world) {
		decorated(w)
		(*w.memory()).OwnerReferences[0].Name = "other"
		w.controlPlane()
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNotOurs)
		*w.memory() = nil
		w.wait(time.Minute)
		w.proxy(proxyA)
	})
	for name, change := range map[string]func(*corev1.Secret){
		"no owner":        func(s *corev1.Secret) { s.OwnerReferences = nil },
		"a UID of before": func(s *corev1.Secret) { s.OwnerReferences[0].UID = "before" },
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			decorated(w)
			w.cluster.Annotations = map[string]string{}
			m := (*w.memory()).DeepCopy()
			change(m)
			*w.memory() = w.stored(m)
			w.controlPlane()
			w.settle()
			w.proxy(proxyA)
			if refs := (*w.memory()).OwnerReferences; len(refs) != 1 || string(refs[0].UID) != w.cluster.UID {
				t.Errorf("got the owners %v", refs)
			}
		})
	}
	inBubble(t, "gone with the mode", func(t *testing.T, w *world) {
		decorated(w)
		w.annotate("mode", "off")
		w.settle()
		if *w.memory() != nil {
			t.Error("handed back, and the memory is there")
		}
		w.annotate("mode", "secondary")
		w.settle()
		second := w.slot(provider.RecordsName("c1-proxied"))
		if *w.memory() != nil || *second == nil {
			t.Error("mode secondary: want a memory of the second Secret only")
		}
		w.annotate("mode", "decorate")
		w.settle()
		if *w.memory() == nil || *second != nil {
			t.Error("mode decorate: want a memory of the first Secret only")
		}
	})
}

// A large bundle is remembered once, however often the route changes, and has a bound.
func TestLargeBundle(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		bundle := func(n, size int) string { // with comments, as distributions have them
			return string(w.ca.cert) + strings.Repeat(strconv.Itoa(n), size-len(w.ca.cert))
		}
		w.controlPlane()
		w.annotate("route-secret", "route")
		w.annotate("probe", "off")
		for n, size := range []int{220 << 10, 220 << 10, 256 << 10} {
			for _, name := range []string{"a", "b"} { // the same bundle
				w.route("route", map[string]string{"proxy-url": "https://" + name + ".test:3128", "ca.crt": bundle(n, size)})
				w.settle()
				w.proxy("https://" + name + ".test:3128")
				size, bundles := 0, 0
				for key, value := range (*w.memory()).Data {
					if size += len(value); len(value) > 200<<10 {
						bundles++
						if !strings.HasPrefix(key, "causeway-extension-") {
							t.Errorf("the key %s has %d bytes", key, len(value))
						}
					}
				}
				if want := 1 + min(n, 1)*strings.Count("a", name); size > 1<<20 || bundles != want {
					t.Errorf("got %d bytes, %d bundles", size, bundles)
				}
			}
		}
		w.annotate("rollback", "")
		w.settle()
		w.proxy("https://a.test:3128")
		delete(w.cluster.Annotations, provider.AnnotationRollback)
		w.settle()
		w.route("route", map[string]string{"proxy-url": "https://c.test:3128", "ca.crt": bundle(9, 256<<10+1)})
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
		w.message("the Secret clusters/route: ca.crt has 262145 bytes, want at most 262144")
		w.proxy("https://b.test:3128")
	})
}
