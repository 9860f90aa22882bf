package controllers_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// user makes the Secret that a user has.
func (b *bed) user(namespace, name string) {
	b.Set("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": namespace, "name": name + "-kubeconfig", "labels": map[string]any{kubeconfig.ClusterNameLabel: name}},
		"data":     map[string]any{"value": "Y2FuYXJ5"},
	})
}

// settled waits until a change of another Cluster was through the only worker:
// what was queued before was looked at, too.
func (b *bed) settled(t *testing.T, n int) {
	t.Helper()
	other := fmt.Sprint("other", n)
	b.Set("clusters", cluster("a", other, route("p:1")))
	b.Until(t, "another Cluster", func() bool { return b.counted(b.plans, "a/"+other) > 0 })
}

func TestDelete(t *testing.T) {
	b := newBed(t)
	var conflict atomic.Bool
	b.setPlan(func(_ provider.Cluster, s provider.Secrets, _ provider.Config) (a provider.Action, err error) {
		if s.Kubeconfig != nil {
			a.Delete = s.Kubeconfig
		}
		return a, nil
	})
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodDelete && conflict.CompareAndSwap(false, true) {
			b.Change(kubeconfigOf("a", "one"), func(u *unstructured.Unstructured) { annotate(u, "foreign", "1") })
		}
		return 0
	})
	b.user("a", "one")
	b.Set("clusters", cluster("a", "one", nil))
	b.run(t)
	b.Until(t, "the deletion", func() bool { return b.Wrote("DELETE secrets") == 1 })
	if tried := b.Tried("DELETE", "one-kubeconfig"); tried < 2 || !conflict.Load() {
		t.Errorf("got %d tries, want one, a conflict, and another at least: the cache may be late", tried)
	}
}

// TestUnconditional: what a plan wants written without a resourceVersion would
// overwrite what others wrote.
func TestUnconditional(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(*corev1.Secret) provider.Action{
		"update":             func(s *corev1.Secret) provider.Action { s.ResourceVersion = ""; return provider.Action{Update: s} },
		"delete, no version": func(s *corev1.Secret) provider.Action { s.ResourceVersion = ""; return provider.Action{Delete: s} },
		"delete, no UID":     func(s *corev1.Secret) provider.Action { s.UID = ""; return provider.Action{Delete: s} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.setPlan(func(_ provider.Cluster, s provider.Secrets, _ provider.Config) (provider.Action, error) {
				return bad(s.Kubeconfig), nil
			})
			b.user("a", "one")
			b.Set("clusters", cluster("a", "one", nil))
			b.run(t)
			b.Until(t, "the condition", func() bool { return b.reason("one") == provider.ReasonWriteFailed })
			if got := b.Tried("PUT", "one-kubeconfig") + b.Tried("DELETE", "one-kubeconfig"); got != 0 {
				t.Errorf("got %d tries, want none", got)
			}
		})
	}
}

// TestInvalid: what the API server quotes of a Secret is not passed on.
func TestInvalid(t *testing.T) {
	b := newBed(t)
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/secrets") {
			return http.StatusUnprocessableEntity
		}
		return 0
	})
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the condition", func() bool { return b.reason("one") == provider.ReasonWriteFailed })
	list, _, _ := unstructured.NestedSlice(b.Get(apitest.Named("clusters", "a", "one")).Object, "status", "conditions")
	if text := fmt.Sprint(list); strings.Contains(text, "the server says") || !strings.Contains(text, "a/one-kubeconfig") {
		t.Errorf("got %q, want the Secret's name, and not the server's words", text)
	}
}

// TestConditionEcho: the condition is not written again before the cache shows
// it.
func TestConditionEcho(t *testing.T) {
	b := newBed(t)
	b.workers = 1
	b.user("a", "one")
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the first condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	b.Change(apitest.Named("clusters", "a", "one"), func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "status") })
	b.Until(t, "the second condition", func() bool { return b.Wrote("PATCH clusters") == 2 })
	b.Hold("clusters", true)
	b.Change(apitest.Named("clusters", "a", "one"), func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "status") })
	for i := range 3 {
		plans := b.counted(b.plans, "a/one")
		b.Change(kubeconfigOf("a", "one"), func(u *unstructured.Unstructured) { annotate(u, "foreign", fmt.Sprint(i)) })
		b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/one") > plans })
	}
	if got := b.Wrote("PATCH clusters"); got != 2 {
		t.Errorf("got %d writes of the condition, want 2", got)
	}
}

// TestEvents: one that no write belongs to is told once in an hour; with a write,
// each time.
func TestEvents(t *testing.T) {
	b := newBed(t)
	b.setPlan(func(_ provider.Cluster, s provider.Secrets, _ provider.Config) (provider.Action, error) {
		long := strings.Repeat("é", 1000)
		a := provider.Action{Events: []provider.Event{{Type: corev1.EventTypeWarning, Reason: "Long", Message: long}}}
		if string(s.Kubeconfig.Data["value"]) != "ours" {
			a.Update = s.Kubeconfig.DeepCopy()
			a.Update.Data["value"] = []byte("ours")
		}
		return a, nil
	})
	b.user("a", "one")
	b.Set("clusters", cluster("a", "one", nil))
	b.run(t)
	b.Until(t, "both Events", func() bool { return b.Wrote("POST events")+b.Wrote("PATCH events") == 2 })
	for i := range 3 {
		plans := b.counted(b.plans, "a/one")
		b.Change(kubeconfigOf("a", "one"), func(u *unstructured.Unstructured) { annotate(u, "foreign", fmt.Sprint(i)) })
		b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/one") > plans })
	}
	for _, u := range b.List("events") {
		if note, _, _ := unstructured.NestedString(u.Object, "message"); note != strings.Repeat("é", 510)+"..." {
			t.Errorf("got a note of %d bytes, want 1023: whole runes, and the mark of the cut", len(note))
		}
		if uid, _, _ := unstructured.NestedString(u.Object, "involvedObject", "uid"); uid != string(b.Get(apitest.Named("clusters", "a", "one")).GetUID()) {
			t.Errorf("got an Event of %q, want the Cluster's UID", uid)
		}
	}
	if got := b.Tried("POST", "events"); got != 1 {
		t.Errorf("got %d Events, want one, and its repetition", got)
	}
}

// TestIgnored: changes of what is not read lead to no plan.
func TestIgnored(t *testing.T) {
	b := newBed(t)
	b.workers = 1
	b.Set("secrets", routeSecret("unused", "p"))
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the Secret", func() bool { return b.Wrote("PATCH clusters") == 1 })
	// What its own writes lead to is done once these Clusters are.
	for i := range 3 {
		b.settled(t, i)
	}
	plans := b.counted(b.plans, "a/one")
	b.Change(apitest.Named("clusters", "a", "one"), func(u *unstructured.Unstructured) {
		unstructured.SetNestedField(u.Object, "Provisioned", "status", "phase")
		annotate(u, "foreign", "1")
	})
	b.Change(apitest.Named("namespaces", "", "a"), func(u *unstructured.Unstructured) { annotate(u, "foreign", "1") })
	b.Set("secrets", routeSecret("unused", "q"))
	b.settled(t, 3)
	if got := b.counted(b.plans, "a/one") - plans; got != 0 {
		t.Errorf("got %d plans, want none", got)
	}
}

// TestForgets: a Cluster that is gone leaves nothing, and a new one of its name
// is probed anew.
func TestForgets(t *testing.T) {
	b := newBed(t)
	one := apitest.Named("clusters", "a", "one")
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the Secret", func() bool { return b.Wrote("PATCH clusters") == 1 })
	probes := b.counted(b.probes, types.NamespacedName{Namespace: "a", Name: "one"}.String())
	b.Remove(one)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.Until(t, "the new one's probe", func() bool { return b.counted(b.probes, "a/one") == probes+1 })
	b.Until(t, "its condition", func() bool { return b.Wrote("PATCH clusters") == 2 && b.Wrote("POST events") == 1 })
	want := map[string]int{"POST secrets": 1, "POST events": 1, "PATCH clusters": 2}
	if got := b.AllWrites(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A Cluster is asked for by its name before each write: a list takes a tenth of a second. Who may
// only list, lists.
func TestClusterAsked(t *testing.T) {
	for name, forbidden := range map[string]bool{"get": false, "list only": true} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.setPlan(provider.Plan)
			var gets, lists atomic.Int32
			b.SetFault(func(r *http.Request) int {
				switch {
				case r.Method != http.MethodGet:
				case strings.HasSuffix(r.URL.Path, "/clusters/one"):
					if gets.Add(1); forbidden {
						return http.StatusForbidden
					}
				case strings.Contains(r.URL.RawQuery, "metadata.name%3Done") && strings.HasSuffix(r.URL.Path, "/clusters"):
					lists.Add(1)
				}
				return 0
			})
			b.drop()
			annotations := route("p:1")
			annotations[provider.AnnotationProbe] = "off"
			b.Set("clusters", cluster("a", "one", annotations))
			b.run(t)
			b.Until(t, "the condition", func() bool { return b.reason("one") == provider.ReasonNotProbed })
			if n := lists.Load(); (n > 0) != forbidden {
				t.Errorf("got %d lists", n)
			}
			if n := gets.Load(); n != 2 { // the Secrets, and then what the condition is about
				t.Errorf("it was asked for %d times, want once for the writes of each of two plans", n)
			}
		})
	}
}
