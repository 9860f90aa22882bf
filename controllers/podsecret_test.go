package controllers_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

func namespace(name string, labels map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels}}
}

// runPodSecrets runs a reconciler in a manager of its own, as a replica does.
func (b *proxyBed) runPodSecrets(r *controllers.PodSecretReconciler) (stop func()) {
	b.t.Helper()
	mgr := b.manager()
	ctx, cancel := context.WithCancel(b.t.Context())
	if err := r.SetupWithManager(ctx, mgr, controller.Options{}); err != nil {
		b.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("got %v of Start, want nil", err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

func proxied(ns proxyconfig.Namespace) bool { return ns.Labels["proxy"] == "on" }

// The Secret of pods is in the namespaces that want it, follows its source, and does
// not change a Secret that others made.
func TestPodSecrets(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	on := map[string]any{"proxy": "on"}
	r := &controllers.PodSecretReconciler{Source: "system/proxy", Name: "proxy", Namespaces: proxied}
	for _, name := range []string{"a", "theirs", "system"} { // in system it is the source
		b.Set("namespaces", namespace(name, on))
	}
	b.Set("namespaces", namespace("off", nil))
	b.Set("secrets", secretWith("theirs", "proxy", nil, "HTTP_PROXY", "theirs"))
	b.runPodSecrets(r)
	a := apitest.Named("secrets", "a", "proxy")
	b.Until(t, "the Secret, and the Event", func() bool { return b.value(a, "HTTP_PROXY") == proxy && b.Wrote("POST events") == 1 })
	b.Until(t, "that it is known", func() bool { return r.Has("a", "HTTP_PROXY") })
	if r.Has("a", "x") || r.Has("off", "HTTP_PROXY") || !r.Has("theirs", "HTTP_PROXY") {
		t.Error("got another answer about what is there")
	}
	if got := b.value(a, "HTTPS_PROXY") + b.value(a, "NO_PROXY"); got != proxy+people || b.Get(a).GetLabels()[propagate.LabelManagedBy] != "causeway" {
		t.Errorf("got %q, want all three keys, and the label", got)
	}
	b.Set("secrets", secretWith("system", "proxy", nil, "HTTPS_PROXY", other))
	b.Until(t, "the change", func() bool { return b.value(a, "HTTPS_PROXY") == other })
	if got := b.value(a, "HTTP_PROXY") + b.value(a, "NO_PROXY"); got != "" {
		t.Errorf("got %q, want what is not set empty", got)
	}
	b.Set("namespaces", namespace("late", on))
	late := apitest.Named("secrets", "late", "proxy")
	b.Until(t, "the late one", func() bool { return b.value(late, "HTTPS_PROXY") == other })

	// What is deleted is made again.
	b.Remove(a)
	b.Until(t, "it again", func() bool { return b.value(a, "HTTPS_PROXY") == other })
	b.Set("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "system", "name": "proxy"},
		"data": map[string]any{"values": "cluster: {proxy: {noProxy: more.test}}"}})
	b.Until(t, "what the ConfigMap adds", func() bool { return b.value(a, "NO_PROXY") == "more.test" })
	if got := b.value(apitest.Named("secrets", "theirs", "proxy"), "HTTP_PROXY"); got != "theirs" ||
		b.Get(apitest.Named("secrets", "off", "proxy")) != nil {
		t.Errorf("got %q in another's Secret, and off has one: %v", got, b.AllWrites())
	}
	b.Remove(installed)
	b.Until(t, "a message about the source", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Contains(b.text.String(), "what was before stays")
	})
	if b.value(a, "HTTPS_PROXY") != other {
		t.Error("the Secret is another without its source")
	}
}

// Nothing that a tenant writes to a namespace gets them the password there, nor does a
// namespace get it that has left the scope while a cache does not know.
func TestPodSecretTenants(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	on, ours := map[string]any{"proxy": "on"}, map[string]any{propagate.LabelManagedBy: "causeway"}
	key := func(name string) apitest.Key { return apitest.Named("secrets", name, "proxy") }
	bait := func(name string, owners ...any) {
		secret := secretWith(name, "proxy", ours, "HTTP_PROXY", "bait", "NO_PROXY", "")
		secret["metadata"].(map[string]any)["annotations"] = map[string]any{propagate.AnnotationSource: "x/1"}
		secret["metadata"].(map[string]any)["ownerReferences"] = owners
		b.Set("secrets", secret)
	}
	for _, name := range []string{"label", "owner", "leaves"} {
		b.Set("namespaces", namespace(name, nil))
	}
	bait("label")
	bait("owner", map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "owner", "uid": string(b.Get(apitest.Named("namespaces", "", "owner")).GetUID())})
	for _, name := range []string{"in", "leaves", "anew"} {
		b.Set("namespaces", namespace(name, on))
	}
	b.runPodSecrets(&controllers.PodSecretReconciler{Source: "system/proxy", Name: "proxy", Namespaces: proxied})
	b.Until(t, "the Secrets, and two Events", func() bool {
		return b.value(key("in"), "HTTP_PROXY") == proxy && b.value(key("leaves"), "HTTP_PROXY") == proxy && b.value(key("anew"), "HTTP_PROXY") == proxy && b.Wrote("POST events") == 2
	})
	b.Hold("namespaces", true)
	b.Set("namespaces", namespace("leaves", nil))
	b.Remove(apitest.Named("namespaces", "", "anew"))
	b.Set("namespaces", namespace("anew", on)) // another's, with labels that a cache has not seen
	for _, name := range []string{"leaves", "anew"} {
		plans := b.planned("/" + name)
		b.Remove(key(name))
		b.Until(t, "two tries", func() bool { return b.planned("/"+name) > plans+1 })
		if b.Get(key(name)) != nil {
			t.Errorf("%s: got a Secret in a namespace that is not the one in scope", name)
		}
	}
	b.Hold("namespaces", false)
	b.install(other)
	b.Until(t, "the change where it is wanted", func() bool {
		return b.value(key("in"), "HTTP_PROXY") == other && b.value(key("anew"), "HTTP_PROXY") == other
	})
	for _, name := range []string{"label", "owner"} {
		if got := b.value(key(name), "HTTP_PROXY"); got != "bait" {
			t.Errorf("%s: got %q in a namespace out of scope", name, got)
		}
	}
	if b.Get(key("leaves")) != nil {
		t.Error("leaves has the Secret again")
	}
}

// Replicas that know different versions of the source don't undo what the other does,
// and the one that has read the same ends.
func TestPodSecretReplicas(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	b.Set("namespaces", namespace("a", map[string]any{"proxy": "on"}))
	stuck := make(chan struct{})
	one := &controllers.PodSecretReconciler{Source: "system/proxy", Name: "proxy", Namespaces: proxied}
	two := &controllers.PodSecretReconciler{Source: "system/proxy", Name: "proxy", Namespaces: proxied}
	two.Render = func(c proxyconfig.Config) (proxyconfig.Config, error) {
		if c.HTTPProxy == other { // it has yet to read the change
			<-stuck
		}
		return c, nil
	}
	b.runPodSecrets(one)
	b.runPodSecrets(two)
	a := apitest.Named("secrets", "a", "proxy")
	b.Until(t, "both to know the Secret", func() bool { return one.Has("a", "HTTP_PROXY") && two.Has("a", "HTTP_PROXY") })
	b.install(other)
	b.Until(t, "the change", func() bool { return b.value(a, "HTTP_PROXY") == other })
	b.Set("namespaces", namespace("a", map[string]any{"proxy": "on", "x": "y"})) // both look again
	b.Set("namespaces", namespace("b", map[string]any{"proxy": "on"}))
	second := apitest.Named("secrets", "b", "proxy")
	b.Until(t, "the second to be current", func() bool { return b.value(second, "HTTP_PROXY") == other })
	close(stuck)
	if got := b.value(a, "HTTP_PROXY"); got != other {
		t.Errorf("got %q, want the later one", got)
	}
}

// Replicas with different flags write less and less.
func TestPodSecretRewrites(t *testing.T) {
	want := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 10 * time.Minute, 10 * time.Minute}
	if got := controllers.RewriteDelays(len(want)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What Render refuses changes nothing, and Refresh has it called again.
func TestPodSecretRender(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	b.Set("namespaces", namespace("a", map[string]any{"proxy": "on"}))
	var mu sync.Mutex // guards list
	list := ""
	r := &controllers.PodSecretReconciler{Source: "system/proxy", Name: "proxy", Namespaces: proxied,
		Render: func(c proxyconfig.Config) (proxyconfig.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			if list == "" {
				return c, errors.New("not yet")
			}
			c.NoProxy = list
			return c, nil
		}}
	b.runPodSecrets(r)
	b.Until(t, "the refusal, and an Event of it", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.errs) > 0 && b.Wrote("POST events") == 1
	})
	a := apitest.Named("secrets", "a", "proxy")
	if b.Get(a) != nil {
		t.Error("got a Secret, want none")
	}
	for _, want := range []string{"one.test", "two.test"} {
		mu.Lock()
		list = want
		mu.Unlock()
		r.Refresh()
		b.Until(t, want, func() bool { return b.value(a, "NO_PROXY") == want })
	}
	if got, want := b.AllWrites(), map[string]int{"POST events": 1, "POST secrets": 1, "PUT secrets": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPodSecretCheck(t *testing.T) {
	for want, r := range map[string]*controllers.PodSecretReconciler{
		"Source":                 {},
		"want the name":          {Source: "a/b", Name: "A B", Namespaces: proxied},
		"Namespaces is required": {Source: "a/b", Name: "a"},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
