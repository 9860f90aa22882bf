package controllers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// TestProxySetup: what can't work is said before anything runs.
func TestProxySetup(t *testing.T) {
	b := newProxyBed(t)
	valid := propagate.Config{Installation: "a/b"}
	for _, tt := range []struct {
		name string
		r    controllers.ProxyReconciler
		want string
	}{
		{"valid", controllers.ProxyReconciler{Config: valid}, ""},
		{"no installation", controllers.ProxyReconciler{}, "Config.Installation"},
		{"an installation nowhere", controllers.ProxyReconciler{Config: propagate.Config{Installation: "b"}}, "Config.Installation"},
		{"an installation too deep", controllers.ProxyReconciler{Config: propagate.Config{Installation: "a/b/c"}}, "Config.Installation"},
		{"bad label", controllers.ProxyReconciler{Config: propagate.Config{Installation: "a/b", ManagedBy: "x y"}}, "Config.ManagedBy"},
	} {
		err := tt.r.Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if err := new(controllers.ProxyReconciler).SetupWithManager(t.Context(), b.manager(), controller.Options{}); err == nil {
		t.Error("got no error without a Config, want one")
	}
	b.Serve("cluster.x-k8s.io", nil)
	if err := b.reconciler.SetupWithManager(t.Context(), b.manager(), controller.Options{}); !errors.Is(err, controllers.ErrNoCRD) {
		t.Errorf("got %v without Cluster API, want ErrNoCRD", err)
	}
}

// A first pass writes in the documented order, a second Propagator nothing.
func TestProxyRun(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	b.Set("clusters", proxiedCluster("org", "one"))
	stop := b.run()
	b.Until(t, "the objects", b.current(proxy))
	b.Until(t, "the writes told", func() bool { return len(b.since(0)) == 3 })
	if got := b.since(0); !slices.Equal(got, all) {
		t.Errorf("got %v, want %v", got, all)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	before, plans := b.AllWrites(), b.planned("org/one")
	stop = b.run()
	b.Until(t, "a plan", func() bool { return b.planned("org/one") > plans })
	if err := stop(); err != nil { // and with it all that goes on
		t.Fatal(err)
	}
	want := map[string]int{"POST secrets": 2, "POST configmaps": 1}
	if got := b.AllWrites(); !maps.Equal(got, before) || !maps.Equal(got, want) {
		t.Errorf("got %v, then %v, want %v", before, got, want)
	}
	owners := b.Get(systemd).GetOwnerReferences()
	if len(owners) != 1 || owners[0].UID != b.Get(one).GetUID() || owners[0].Controller != nil {
		t.Errorf("got owners %v, want the Cluster", owners)
	}
}

// Each of what a plan depends on leads to a new one.
func TestProxyChanges(t *testing.T) {
	t.Parallel()
	contains := func(key apitest.Key, name, text string) func(*proxyBed) bool {
		return func(b *proxyBed) bool { return strings.Contains(b.value(key, name), text) }
	}
	current := func(url string) func(*proxyBed) bool { return func(b *proxyBed) bool { return b.current(url)() } }
	tests := []struct {
		name   string
		change func(*proxyBed)
		want   func(*proxyBed) bool
	}{
		{"a password", func(b *proxyBed) { b.install(other) }, current(other)},
		{"an override", func(b *proxyBed) { b.override("HTTP_PROXY", other, "HTTPS_PROXY", other) }, current(other)},
		{"an override that ends", func(b *proxyBed) {
			b.override("HTTP_PROXY", other, "HTTPS_PROXY", other)
			b.Until(b.t, "the override", b.current(other))
			b.override("direct", "false")
		}, current(proxy)},
		{"the endpoint", func(b *proxyBed) {
			b.Change(one, func(u *unstructured.Unstructured) {
				unstructured.SetNestedField(u.Object, "192.0.2.7", "spec", "controlPlaneEndpoint", "host")
			})
		}, contains(systemd, "containerdProxy", ",192.0.2.7,")},
		{"a drop-in deleted", func(b *proxyBed) { b.Remove(systemd) }, current(proxy)},
		{"values edited", func(b *proxyBed) {
			b.Change(valuesOf, func(u *unstructured.Unstructured) { unstructured.SetNestedField(u.Object, "eA==", "data", "values") })
		}, current(proxy)},
		{"the ConfigMap deleted", func(b *proxyBed) { b.Remove(factsOf) }, current(proxy)},
		{"unpaused", func(b *proxyBed) {
			b.Change(one, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": ""}) })
			b.install(other)
			b.Change(one, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
		}, current(other)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := settledProxies(t)
			plans := b.planned("org/one")
			tt.change(b)
			b.Until(t, "the change", func() bool { return b.planned("org/one") > plans && tt.want(b) })
		})
	}
}

// TestProxyInstallationGone: one Event for all Clusters, the hook, and no write.
func TestProxyInstallationGone(t *testing.T) {
	b := settledProxies(t)
	b.Set("clusters", proxiedCluster("org", "two"))
	b.Until(t, "the second", func() bool { return b.Get(apitest.Named("configmaps", "org", "two-cluster-values")) != nil })
	before := b.AllWrites()
	one, two := b.planned("org/one"), b.planned("org/two")
	b.Remove(installed)
	b.Until(t, "the plans, and the Event", func() bool {
		return b.planned("org/one") > one && b.planned("org/two") > two && b.Wrote("POST events") == 1
	})
	b.Set("secrets", secretWith("system", "proxy", nil))
	b.Until(t, "another Event", func() bool { return b.Wrote("POST events") == 2 })
	b.Set("clusters", proxiedCluster("org", "three"))
	b.Until(t, "the third's plan", func() bool { return b.planned("org/three") > 0 })
	after := b.AllWrites()
	delete(after, "POST events")
	if !maps.Equal(after, before) || !b.current(proxy)() {
		t.Errorf("got %v, want %v", after, before)
	}
	for _, u := range b.List("events") {
		if about := u.Object["involvedObject"].(map[string]any); about["kind"] != "Secret" || about["name"] != "proxy" || u.Object["reason"] != propagate.ReasonInstallation || u.GetNamespace() != "system" {
			t.Errorf("got %v, want one about the Secret", u.Object)
		}
	}
	b.install(other)
	b.Until(t, "the way on", b.current(other))
	b.Until(t, "the hook", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := len(b.installations)
		return errors.Join(b.installations...) != nil && b.installations[0] == nil && b.installations[n-1] == nil
	})
}

// TestProxyNoInstallation: it is told of, though nothing has changed.
func TestProxyNoInstallation(t *testing.T) {
	b := newProxyBed(t)
	b.Set("clusters", proxiedCluster("org", "one"))
	b.run()
	b.Until(t, "the Event, and the hook", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.Wrote("POST events") == 1 && len(b.installations) > 0 && b.installations[0] != nil && b.plans["org/one"] > 0
	})
	if b.Get(systemd) != nil || b.Wrote("POST configmaps") != 0 {
		t.Errorf("got %v, want an Event alone", b.AllWrites())
	}
}

// TestProxyForeign: an object that isn't in a cache, since it isn't ours, is found,
// told of and left alone, and the others are written.
func TestProxyForeign(t *testing.T) {
	for _, labels := range []map[string]any{nil, {propagate.LabelManagedBy: "cluster-apps-operator"}} {
		b := newProxyBed(t)
		b.install(proxy)
		for _, name := range []string{"one-systemd-proxy", "one-cluster-values"} {
			b.Set("secrets", secretWith("org", name, labels, "containerdProxy", "theirs", "values", "theirs"))
		}
		b.Set("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"values": "theirs"},
			"metadata": map[string]any{"namespace": "org", "name": "two-cluster-values", "labels": labels}})
		b.Set("clusters", proxiedCluster("org", "one"))
		b.Set("clusters", proxiedCluster("org", "two"))
		b.run()
		b.Until(t, "the Events", func() bool { return b.Wrote("POST events") == 3 })
		want := map[string]int{"POST events": 3, "POST configmaps": 1, "POST secrets": 2}
		if got := b.AllWrites(); !maps.Equal(got, want) || b.value(systemd, "containerdProxy") != "theirs" || b.value(valuesOf, "values") != "theirs" {
			t.Errorf("got %v, want %v and theirs as they were", got, want)
		}
		for _, u := range b.List("events") {
			if note := fmt.Sprint(u.Object["message"]); u.Object["reason"] != propagate.ReasonNotOurs || !strings.Contains(note, "or set") {
				t.Errorf("got %v", u.Object)
			}
		}
		b.Change(systemd, func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{propagate.LabelManagedBy: "causeway"})
		})
		b.Until(t, "the drop-in", func() bool { return strings.Contains(b.value(systemd, "containerdProxy"), proxy) })
		if got := b.value(systemd, "values"); got != "theirs" {
			t.Errorf("got %q of another key, want theirs", got)
		}
	}
}

// A Cluster that left the scope after it was read gets no password, while the cache shows it
// as it was.
func TestProxyScope(t *testing.T) {
	for name, leave := range map[string]func(*proxyBed){
		"paused": func(b *proxyBed) {
			b.Change(one, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": ""}) })
		},
		"deleting": func(b *proxyBed) {
			b.Change(one, func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: time.Now()}) })
		},
		"gone": func(b *proxyBed) { b.Remove(one) },
		"another of its name": func(b *proxyBed) {
			b.Remove(one)
			b.Set("clusters", proxiedCluster("org", "one"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := settledProxies(t)
			b.Hold("clusters", true)
			leave(b)
			before, plans := b.AllWrites(), b.planned("org/one")
			b.install(other)
			b.Until(t, "two plans", func() bool { return b.planned("org/one") > plans+1 })
			if got := b.AllWrites(); !maps.Equal(got, before) {
				t.Errorf("got writes %v, then %v, want none more", before, got)
			}
		})
	}
}

// TestProxyConflict: another writes between the read and the write. Its key stays.
func TestProxyConflict(t *testing.T) {
	b := settledProxies(t)
	var once atomic.Bool
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "-systemd-proxy") && once.CompareAndSwap(false, true) {
			b.Change(systemd, func(u *unstructured.Unstructured) { unstructured.SetNestedField(u.Object, "eA==", "data", "foreign") })
		}
		return 0
	})
	b.install(other)
	b.Until(t, "the change", b.current(other))
	if got := b.value(systemd, "foreign"); got != "x" || !once.Load() {
		t.Errorf("got %q of the other's key (%v), want x", got, once.Load())
	}
}

// TestProxyOrder: what comes after a write that failed waits for it.
func TestProxyOrder(t *testing.T) {
	b := settledProxies(t)
	var failed atomic.Int32
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "-systemd-proxy") && failed.Add(1) <= 2 {
			return http.StatusUnprocessableEntity
		}
		return 0
	})
	n := len(all)
	b.install(other)
	b.Until(t, "the change", b.current(other))
	b.Until(t, "the writes told", func() bool { return len(b.since(n)) >= 2 })
	want := []string{"update Secret org/one-systemd-proxy", "update Secret org/one-cluster-values"}
	if got := b.since(n); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errs) != 2 || !strings.Contains(b.errs[0].Error(), "update Secret org/one-systemd-proxy: the API server finds it invalid") {
		t.Errorf("got %v, want two errors that name the write", b.errs)
	}
}

// TestProxyEcho: no plan is made of a cache that doesn't show the last write.
func TestProxyEcho(t *testing.T) {
	b := newProxyBed(t)
	b.workers = 1 // so that what is queued first is looked at first
	b.install(proxy)
	b.Set("clusters", proxiedCluster("org", "one"))
	b.Hold("secrets", true)
	b.run()
	b.Until(t, "the objects", b.current(proxy))
	b.Until(t, "the writes told", func() bool { return len(b.since(0)) == 3 })
	plans := b.planned("org/one")
	b.Change(one, func(u *unstructured.Unstructured) {
		unstructured.SetNestedField(u.Object, "192.0.2.7", "spec", "controlPlaneEndpoint", "host")
	})
	// Another Cluster shows when the change was through the queue.
	b.Set("clusters", proxiedCluster("org", "two"))
	b.Until(t, "the other Cluster", func() bool { return b.planned("org/two") > 0 })
	if got := b.planned("org/one"); got != plans {
		t.Errorf("got %d plans of an old cache, want none", got-plans)
	}
	b.Hold("secrets", false)
	b.Until(t, "the change", func() bool { return strings.Contains(b.value(systemd, "containerdProxy"), "192.0.2.7") })
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range b.errs {
		t.Errorf("got %v, want no conflict", err)
	}
}

// TestProxyShortLived: an object that was deleted before the cache showed it is made
// again, and not waited for.
func TestProxyShortLived(t *testing.T) {
	b := newProxyBed(t)
	b.Hold("secrets", true)
	b.install(proxy)
	b.Set("clusters", proxiedCluster("org", "one"))
	b.run()
	b.Until(t, "the objects", b.current(proxy))
	b.Until(t, "the writes told", func() bool { return len(b.since(0)) == 3 })
	b.Remove(systemd)
	began := time.Now()
	b.Hold("secrets", false)
	b.Until(t, "another", b.current(proxy))
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("got it after %v, want it at once", took)
	}
}

// TestProxySelectors wants four selections of Secrets and ConfigMaps to be asked for: our
// own, the overrides, the installation's, and of the others the metadata only.
func TestProxySelectors(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	var mu sync.Mutex // guards the set
	asked := map[string]bool{}
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/") {
			mu.Lock()
			defer mu.Unlock()
			of := r.URL.Query().Get("fieldSelector")
			if first, _, _ := strings.Cut(r.Header.Get("Accept"), ","); strings.Contains(first, ";as=PartialObjectMetadata") {
				of += "metadata alone"
			}
			asked[r.URL.Path+" "+r.URL.Query().Get("labelSelector")+" "+of] = true
		}
		return 0
	})
	b.run()
	b.Until(t, "the work's begin", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.installations) > 0 })
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		"/api/v1/configmaps giantswarm.io/managed-by=causeway ",
		"/api/v1/namespaces/system/secrets  metadata.name=proxy",
		"/api/v1/secrets !causewayproject.github.io/proxy-override metadata alone",
		"/api/v1/secrets causewayproject.github.io/proxy-override ",
		"/api/v1/secrets giantswarm.io/managed-by=causeway ",
	}
	if got := slices.Sorted(maps.Keys(asked)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestProxyUnlabelled: an override without its label is told of, whenever it is made, and
// read once it has the label.
func TestProxyUnlabelled(t *testing.T) {
	t.Parallel()
	b := settledProxies(t)
	before := b.AllWrites()
	b.Set("secrets", secretWith("org", "one-proxy-override", nil, "HTTP_PROXY", other, "HTTPS_PROXY", other))
	b.Until(t, "the Event", func() bool { return b.Wrote("POST events") == 1 })
	after := b.AllWrites()
	delete(after, "POST events")
	if !maps.Equal(after, before) || !b.current(proxy)() {
		t.Errorf("got %v, want %v", after, before)
	}
	for _, u := range b.List("events") {
		about := u.Object["involvedObject"].(map[string]any)
		if about["kind"] != "Cluster" || about["name"] != "one" || u.Object["reason"] != propagate.ReasonOverride || !strings.Contains(u.Object["message"].(string), "has no label") {
			t.Errorf("got %v, want one about the Cluster", u.Object)
		}
	}
	b.Set("secrets", secretWith("org", "stranger", nil, "x", canary))
	b.override("HTTP_PROXY", other, "HTTPS_PROXY", other)
	b.Until(t, "the override", b.current(other))
}

// TestProxyMove: what clusterctl move takes is what the Cluster owns. Where the override is
// not among it, as it was of another controller, an Event says so, and nothing becomes proxied.
func TestProxyMove(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*unstructured.Unstructured){
		"moved": func(*unstructured.Unstructured) {},
		"another controller": func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "g/v1", Kind: "ExternalSecret", Name: "x", UID: "x"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := newProxyBed(t), newProxyBed(t)
			from.install(proxy)
			from.Set("clusters", proxiedCluster("org", "one"))
			from.override("direct", "true", "credentials", "nowhere")
			from.Change(overrideOf, change)
			from.run()
			direct := func(b *proxyBed) bool {
				return b.Get(factsOf) != nil && !strings.Contains(b.value(systemd, "containerdProxy"), "HTTP_PROXY") && b.value(systemd, "containerdProxy") != ""
			}
			from.Until(t, "the objects", func() bool {
				return direct(from) && (name != "moved" || len(from.Get(overrideOf).GetOwnerReferences()) == 1 && from.Get(overrideOf).GetLabels()["cluster.x-k8s.io/cluster-name"] == "one")
			})
			to.install(proxy)
			to.Set("clusters", proxiedCluster("org", "one"))
			uid := to.Get(one).GetUID()
			for _, key := range []apitest.Key{systemd, valuesOf, factsOf, overrideOf} {
				u := from.Get(key)
				owners := u.GetOwnerReferences()
				if len(owners) != 1 || owners[0].Kind != "Cluster" {
					continue
				}
				owners[0].UID = uid
				u.SetOwnerReferences(owners)
				u.SetResourceVersion("")
				u.SetUID("")
				to.Set(key.Resource, u.Object)
			}
			to.run()
			if name == "moved" {
				to.Until(t, "a plan", func() bool { return to.planned("org/one") > 0 })
			} else {
				to.Until(t, "the Event", func() bool { return to.Wrote("POST events") == 1 })
				if e := to.List("events")[0].Object; e["reason"] != propagate.ReasonOverride || !strings.Contains(fmt.Sprint(e["message"]), "org/one-proxy-override: it is gone; what was written before stays") {
					t.Errorf("got %v, want one about the override", e)
				}
			}
			plans := to.planned("org/one")
			to.install(other)
			to.Until(t, "another plan", func() bool { return to.planned("org/one") > plans })
			if !direct(to) || to.Wrote("PUT secrets") > 0 {
				t.Errorf("got writes %v and\n%s\nwant it direct", to.AllWrites(), to.value(systemd, "containerdProxy"))
			}
		})
	}
}

// TestProxyOverrideConflict: a person edits the override while it gets its owner.
func TestProxyOverrideConflict(t *testing.T) {
	t.Parallel()
	b := settledProxies(t)
	var once atomic.Bool
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "-proxy-override") && once.CompareAndSwap(false, true) {
			b.override("HTTP_PROXY", other, "HTTPS_PROXY", other)
		}
		return 0
	})
	b.override("direct", "true")
	b.Until(t, "the edit, owned", func() bool { return b.current(other)() && len(b.Get(overrideOf).GetOwnerReferences()) == 1 })
	if !once.Load() {
		t.Error("got no conflict")
	}
}

// TestProxyValuesName: objects of its own name are kept beside those of another operator.
func TestProxyValuesName(t *testing.T) {
	t.Parallel()
	b := newProxyBed(t)
	b.install(proxy)
	b.reconciler.Config.ValuesName, b.reconciler.Config.SystemdName = "proxy-values", "machine-proxies"
	b.Set("secrets", secretWith("org", "one-cluster-values", map[string]any{propagate.LabelManagedBy: "cluster-apps-operator"}, "values", "theirs"))
	b.Set("clusters", proxiedCluster("org", "one"))
	b.run()
	values, facts := apitest.Named("secrets", "org", "one-proxy-values"), apitest.Named("configmaps", "org", "one-proxy-values")
	machines := apitest.Named("secrets", "org", "one-machine-proxies")
	made := func() bool {
		return strings.Contains(b.value(values, "values"), proxy+"\n") && b.Get(facts) != nil && strings.Contains(b.value(machines, "containerdProxy"), proxy)
	}
	b.Until(t, "the objects", made)
	for _, object := range []apitest.Key{values, facts, machines} {
		b.Remove(object)
		b.Until(t, "another", made)
	}
	if text := b.value(valuesOf, "values"); text != "theirs" || b.Get(systemd) != nil || b.Wrote("POST events") > 0 {
		t.Errorf("got\n%s\nand %d Events", text, b.Wrote("POST events"))
	}
}

// TestProxyFacts: the program's own facts, of the whole Cluster.
func TestProxyFacts(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	b.cache = cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	b.reconciler.Facts = func(u *unstructured.Unstructured, facts *noproxy.Cluster) {
		if len(u.GetManagedFields()) > 0 {
			t.Error("got managedFields, which a cache need not keep")
		}
		facts.NodeCIDRs = append(facts.NodeCIDRs, u.GetLabels()["nodes"]+"/24")
	}
	c := proxiedCluster("org", "one")
	c["metadata"].(map[string]any)["labels"] = map[string]any{"nodes": "10.1.1.0"}
	c["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "m"}}
	b.Set("clusters", c)
	b.run()
	b.Until(t, "the nodes", func() bool { return strings.Contains(b.value(systemd, "containerdProxy"), ",10.1.1.0/24,") })
	b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"nodes": "10.2.2.0"}) })
	b.Until(t, "other nodes", func() bool { return strings.Contains(b.value(systemd, "containerdProxy"), ",10.2.2.0/24,") })
}

// TestProxyNamespaces wants no write for Clusters in other namespaces. It uses the old
// version of Clusters.
func TestProxyNamespaces(t *testing.T) {
	b := newProxyBed(t)
	b.Serve("cluster.x-k8s.io", &apitest.Group{Version: "v1beta1", Kinds: map[string]string{"clusters": "Cluster"}})
	b.reconciler.Namespaces = []string{"org", "b", "org"}
	b.cache = controllers.CacheOptions(b.reconciler.Namespaces...)
	b.install(proxy)
	for _, ns := range []string{"a", "b", "org"} {
		c := proxiedCluster(ns, "one")
		c["apiVersion"] = "cluster.x-k8s.io/v1beta1"
		b.Set("clusters", c)
	}
	b.run()
	b.Until(t, "two Clusters", func() bool { return b.Wrote("POST configmaps") == 2 && b.current(proxy)() })
	if b.planned("a/one") != 0 {
		t.Error("got a plan for a Cluster in another namespace")
	}
	if got := b.Get(systemd).GetOwnerReferences()[0].APIVersion; got != "cluster.x-k8s.io/v1beta1" {
		t.Errorf("got owner %s, want v1beta1", got)
	}
}

func TestProxyBadCluster(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	c := proxiedCluster("org", "one")
	c["spec"].(map[string]any)["clusterNetwork"] = map[string]any{"pods": map[string]any{"cidrBlocks": "10.0.0.0/8"}}
	b.Set("clusters", c)
	b.run()
	b.Until(t, "the Event", func() bool { return b.Wrote("POST events") == 1 })
	if got := b.List("events")[0].Object; got["reason"] != propagate.ReasonCluster || b.Wrote("POST secrets") != 0 {
		t.Errorf("got %v, want an Event alone", got)
	}
}

// TestProxyCanary: the password is in the Secrets and nowhere else, whatever goes
// wrong.
func TestProxyCanary(t *testing.T) {
	b := settledProxies(t)
	b.override("HTTP_PROXY", "http://"+canary+"@x@y", "HTTPS_PROXY", proxy)
	b.Until(t, "the override's Event", func() bool { return b.Wrote("POST events") == 1 })
	b.Remove(overrideOf)
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodPut {
			return http.StatusUnprocessableEntity
		}
		return 0
	})
	b.install(other)
	b.Until(t, "errors", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.errs) > 2 })
	b.SetFault(nil)
	b.Until(t, "the change", b.current(other))
	b.install("http://user:" + canary + "@x@proxy")
	b.Until(t, "the installation's Event", func() bool { return b.Wrote("POST events") == 2 })
	var text strings.Builder
	for _, resource := range []string{"events", "configmaps", "clusters"} {
		if len(b.List(resource)) == 0 {
			t.Errorf("got no %s", resource)
		}
		for _, u := range b.List(resource) {
			json.NewEncoder(&text).Encode(u.Object)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	text.WriteString(b.text.String())
	if b.text.Len() == 0 || strings.Contains(text.String(), "Canary") {
		t.Errorf("got nothing, or the password in\n%s", &text)
	}
}

// TestProxyWriteFailed: a write that is refused is logged, told by one Event, and
// tried again after ever longer times; what can be written is.
func TestProxyWriteFailed(t *testing.T) {
	t.Parallel()
	b := settledProxies(t)
	b.Set("clusters", proxiedCluster("org", "two"))
	two := apitest.Named("configmaps", "org", "two-cluster-values")
	b.Until(t, "the second", func() bool { return b.Get(two) != nil })
	var mu sync.Mutex // guards tries
	var tries []time.Time
	b.SetFault(func(r *http.Request) int {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/one-systemd-proxy") {
			return 0
		}
		mu.Lock()
		defer mu.Unlock()
		tries = append(tries, time.Now())
		return http.StatusForbidden
	})
	tried := func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(tries)
	}
	b.install(other)
	b.Until(t, "five tries, and the Event", func() bool { return len(tried()) >= 5 && b.Wrote("POST events") == 1 })
	at := tried()
	if took := at[4].Sub(at[0]); took < 1500*time.Millisecond { // 100, 200, 400 and 800 ms
		t.Errorf("got five tries in %v, want them further and further apart", took)
	}
	if e := b.List("events")[0].Object; e["reason"] != propagate.ReasonWriteFailed || !strings.Contains(fmt.Sprint(e["message"]), "update Secret org/one-systemd-proxy") {
		t.Errorf("got %v, want one about the write", e)
	}
	if got := b.value(apitest.Named("secrets", "org", "two-systemd-proxy"), "containerdProxy"); !strings.Contains(got, other) {
		t.Error("got the other Cluster as it was, want the new password")
	}
	b.SetFault(nil)
	b.Until(t, "the change", b.current(other))
	if n := b.Wrote("POST events"); n != 1 {
		t.Errorf("got %d Events, want one", n)
	}
}
