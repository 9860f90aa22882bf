package provider_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
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
	b.opts.Plan = func(_ provider.Cluster, s provider.Secrets, _ provider.Config) (a provider.Action, err error) {
		if s.Kubeconfig != nil {
			a.Delete = s.Kubeconfig
		}
		return a, nil
	}
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
	b.Until(t, "the hook", func() bool { return b.counted(b.hooked, "delete") == 1 })
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errs) != 1 || !strings.Contains(b.errs[0].Error(), "Conflict") {
		t.Errorf("got %v, want the conflict", b.errs)
	}
}

// TestUnconditional: what a plan wants written without a resourceVersion would
// overwrite what others wrote.
func TestUnconditional(t *testing.T) {
	for name, bad := range map[string]func(*corev1.Secret) provider.Action{
		"update":             func(s *corev1.Secret) provider.Action { s.ResourceVersion = ""; return provider.Action{Update: s} },
		"delete, no version": func(s *corev1.Secret) provider.Action { s.ResourceVersion = ""; return provider.Action{Delete: s} },
		"delete, no UID":     func(s *corev1.Secret) provider.Action { s.UID = ""; return provider.Action{Delete: s} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.opts.Plan = func(_ provider.Cluster, s provider.Secrets, _ provider.Config) (provider.Action, error) {
				return bad(s.Kubeconfig), nil
			}
			b.user("a", "one")
			b.Set("clusters", cluster("a", "one", nil))
			b.run(t)
			b.Until(t, "an error", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.errs) > 0 })
			if got := b.AllWrites(); len(got) != 0 {
				t.Errorf("got %v, want nothing", got)
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
	b.Until(t, "an error", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.errs) > 0 })
	b.mu.Lock()
	defer b.mu.Unlock()
	if text := b.errs[0].Error(); strings.Contains(text, "the server says") || !strings.Contains(text, "a/one-kubeconfig") {
		t.Errorf("got %q, want the Secret's name, and not the server's words", text)
	}
}

// TestConditionEcho: the condition is not written again before the cache shows
// it.
func TestConditionEcho(t *testing.T) {
	b := newBed(t)
	b.opts.Workers = 1
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

// TestEvents: one that no write belongs to is told once in an hour, whoever
// leads; with a write, each time.
func TestEvents(t *testing.T) {
	b := newBed(t)
	b.opts.Plan = func(_ provider.Cluster, s provider.Secrets, _ provider.Config) (provider.Action, error) {
		long := strings.Repeat("é", 1000)
		a := provider.Action{Events: []provider.Event{{Type: corev1.EventTypeWarning, Reason: "Long", Message: long}}}
		if string(s.Kubeconfig.Data["value"]) != "ours" {
			a.Update = s.Kubeconfig.DeepCopy()
			a.Update.Data["value"] = []byte("ours")
		}
		return a, nil
	}
	b.user("a", "one")
	b.Set("clusters", cluster("a", "one", nil))
	first := b.run(t)
	b.Until(t, "both Events", func() bool { return b.counted(b.hooked, "event") == 2 })
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	b.run(t)
	b.Until(t, "a second one's try", func() bool { return b.Tried("POST", "events") == 3 })
	for i := range 2 { // when the second is planned, the first is done
		plans := b.counted(b.plans, "a/one")
		b.Change(kubeconfigOf("a", "one"), func(u *unstructured.Unstructured) { annotate(u, "foreign", fmt.Sprint(i)) })
		b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/one") > plans })
	}
	if got := b.Tried("POST", "events"); got > 4 { // 4 if the hour ended
		t.Errorf("got %d tries to tell the same, want 3", got)
	}
	events := b.List("events")
	if len(events) > 3 || len(events) < 2 { // one with the write, one an hour without
		t.Errorf("got %d Events, want one of the write and one without", len(events))
	}
	for _, u := range events {
		if note, _, _ := unstructured.NestedString(u.Object, "note"); len(note) != 1024 || strings.Contains(note, "\uFFFD") {
			t.Errorf("got a note of %d bytes, want 1024 and whole runes", len(note))
		}
		if uid, _, _ := unstructured.NestedString(u.Object, "regarding", "uid"); uid != string(b.Get(apitest.Named("clusters", "a", "one")).GetUID()) {
			t.Errorf("got an Event of %q, want the Cluster's UID", uid)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errs) > 0 {
		t.Errorf("got %v, want no error of an Event that is there", b.errs)
	}
}

// TestIgnored: changes of what is not read lead to no plan.
func TestIgnored(t *testing.T) {
	b := newBed(t)
	b.opts.Workers = 1
	b.Set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a"}})
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

// TestProbeSlots: no more probes run than are allowed.
func TestProbeSlots(t *testing.T) {
	b := newBed(t)
	b.opts.Probes = 3
	var now, most atomic.Int32
	full := make(chan struct{})
	var once sync.Once
	b.opts.Probe = func(ctx context.Context, _ provider.Cluster, _ *clientcmdapi.Config) probe.Report {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n >= 3 {
			once.Do(func() { close(full) })
		}
		select {
		case <-full:
		case <-ctx.Done():
		}
		return passed
	}
	const clusters = 12
	for i := range clusters {
		b.Set("clusters", cluster("a", fmt.Sprint("c", i), route("p1:1")))
	}
	b.run(t)
	b.Until(t, "all", func() bool { return b.Wrote("PATCH clusters") == clusters })
	if got := most.Load(); got != 3 {
		t.Errorf("got %d probes at once, want 3", got)
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
	b.Until(t, "its condition", func() bool { return b.Wrote("PATCH clusters") == 2 })
	want := map[string]int{"POST secrets": 1, "POST events": 1, "PATCH clusters": 2}
	if got := b.AllWrites(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
