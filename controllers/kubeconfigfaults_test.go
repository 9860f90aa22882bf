package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// TestConflict: another writes between the read and the write. Its key stays.
func TestConflict(t *testing.T) {
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the Secret", func() bool { return b.Wrote("PATCH clusters") == 1 })
	var once atomic.Bool
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "-kubeconfig") && once.CompareAndSwap(false, true) {
			b.Change(kubeconfigOf("a", "one"), func(u *unstructured.Unstructured) {
				unstructured.SetNestedField(u.Object, "Zm9yZWlnbg==", "data", "foreign")
			})
		}
		return 0
	})
	b.Change(apitest.Named("clusters", "a", "one"), func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationProxyURL, "http://p2:1") })
	b.Until(t, "the switch", b.has(kubeconfigOf("a", "one"), "http://p2:1"))
	if got := b.value(kubeconfigOf("a", "one"), "foreign"); got != "foreign" || !once.Load() {
		t.Errorf("got %q of the other's key (%v), want foreign", got, once.Load())
	}
}

// TestScope: a Cluster that left the scope after it was read has nothing written, neither a
// Secret nor a condition, while the cache shows it as it was.
func TestScope(t *testing.T) {
	one := apitest.Named("clusters", "a", "one")
	for name, leave := range map[string]func(*bed, *unstructured.Unstructured){
		"paused": func(b *bed, u *unstructured.Unstructured) {
			unstructured.SetNestedField(u.Object, true, "spec", "paused")
		},
		"another controller's": func(b *bed, u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{"cluster.x-k8s.io/watch-filter": "theirs"})
		},
		"another of its name": func(b *bed, u *unstructured.Unstructured) { b.Remove(one) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.Set("clusters", cluster("a", "one", route("p1:1")))
			b.run(t)
			b.Until(t, "the Secret", func() bool { return b.Wrote("PATCH clusters") == 1 && b.Wrote("POST events") == 1 })
			b.Hold("clusters", true)
			u := b.Get(one)
			leave(b, u)
			b.Set("clusters", u.Object)
			before, plans := b.AllWrites(), b.counted(b.plans, "a/one")
			b.Remove(kubeconfigOf("a", "one"))
			b.Until(t, "three plans", func() bool { return b.counted(b.plans, "a/one") > plans+2 })
			if got := b.AllWrites(); !maps.Equal(got, before) {
				t.Errorf("got writes %v, then %v, want none more", before, got)
			}
		})
	}
}

// TestServerErrors: what fails is planned anew, until it is written, once.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	failed := map[string]int{}
	b.SetFault(func(r *http.Request) int {
		b.mu.Lock()
		defer b.mu.Unlock()
		what := r.Method + " " + r.URL.Path
		if r.URL.Query().Get("watch") != "" || failed[what] >= 2 || !strings.Contains(r.URL.Path, "/namespaces") { // discovery
			return 0
		}
		failed[what]++
		return http.StatusInternalServerError
	})
	b.run(t)
	b.Until(t, "the condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	want := map[string]int{"POST secrets": 1, "PATCH clusters": 1}
	got := b.AllWrites()
	delete(got, "POST events") // are written by another goroutine
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestWatchGap: what was missed is found by listing again.
func TestWatchGap(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.Set("clusters", cluster("a", "two", route("p1:1")))
	b.run(t)
	b.Until(t, "the Secrets", func() bool { return b.Wrote("PATCH clusters") == 2 })
	b.Gap(func() {
		b.Change(apitest.Named("clusters", "a", "one"), func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationProxyURL, "http://p2:1") })
		b.Remove(kubeconfigOf("a", "two"))
	})
	b.Until(t, "both changes", func() bool {
		return b.has(kubeconfigOf("a", "one"), "http://p2:1")() && b.Get(kubeconfigOf("a", "two")) != nil
	})
}

// TestEcho: no plan is made of a cache that doesn't show the last write.
func TestEcho(t *testing.T) {
	for _, what := range []string{"create", "update"} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t)
			one := apitest.Named("clusters", "a", "one")
			b.Set("clusters", cluster("a", "one", route("p1:1")))
			if what == "update" {
				b.run(t)
				b.Until(t, "the Secret", func() bool { return b.Wrote("PATCH clusters") == 1 })
				b.Hold("secrets", true)
				b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationProxyURL, "http://p2:1") })
				b.Until(t, "the switch", b.has(kubeconfigOf("a", "one"), "http://p2:1"))
			} else {
				b.Hold("secrets", true)
				b.run(t)
				b.Until(t, "the Secret", func() bool { return b.Wrote("PATCH clusters") == 1 })
			}
			// Another Cluster shows when the change was through the queue.
			plans := b.counted(b.plans, "a/one")
			b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationProxyURL, "http://p3:1") })
			b.Set("clusters", cluster("a", "two", route("p1:1")))
			b.Until(t, "the other Cluster", func() bool { return b.Get(kubeconfigOf("a", "two")) != nil })
			if got := b.counted(b.plans, "a/one"); got != plans {
				t.Errorf("got %d plans of an old cache, want none", got-plans)
			}
			b.Hold("secrets", false)
			b.Until(t, "the next switch", b.has(kubeconfigOf("a", "one"), "http://p3:1"))
			if tried, wrote := b.Tried(http.MethodPut, "one-kubeconfig"), b.Wrote("PUT secrets"); tried != wrote {
				t.Errorf("got %d tries of %d updates, want no conflict", tried, wrote)
			}
		})
	}
}

// TestShortLived: a Secret that was deleted before the cache showed it is made
// again, and not waited for.
func TestShortLived(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Hold("secrets", true)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the Secret", func() bool { return b.Wrote("PATCH clusters") == 1 })
	b.Remove(kubeconfigOf("a", "one"))
	began := time.Now()
	b.Hold("secrets", false)
	b.Until(t, "another Secret", func() bool { return b.Get(kubeconfigOf("a", "one")) != nil })
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("got it after %v, want it at once", took)
	}
}

// TestHangingProbes block neither the workers nor other probes, and end with the
// manager.
func TestHangingProbes(t *testing.T) {
	t.Parallel()
	const dead = 300
	b := newBed(t)
	b.r.SetProbeTimeout(time.Hour)
	var hanging sync.WaitGroup
	hanging.Add(dead)
	b.setProbe(func(ctx context.Context, c provider.Cluster) probe.Report {
		if strings.HasPrefix(c.Name, "hangs") {
			hanging.Done()
			<-ctx.Done()
		}
		return passed
	})
	for i := range dead {
		b.Set("clusters", cluster("a", fmt.Sprint("hangs", i), route("p1:1")))
	}
	stop := b.run(t)
	hanging.Wait()
	began := time.Now()
	for _, name := range []string{"one", "two", "three"} {
		b.Set("clusters", cluster("a", name, route("p1:1")))
	}
	b.Until(t, "the others", func() bool { return b.Wrote("PATCH clusters") == 3 })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v with %d Clusters that don't answer, want seconds", took, dead)
	}
	// Its Cluster is looked at; a second probe of the same is not started, which
	// would be one too many for the WaitGroup.
	plans := b.counted(b.plans, "a/hangs0")
	b.Change(apitest.Named("clusters", "a", "hangs0"), func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationGrace, "1m") })
	b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/hangs0") > plans })
	if err := stop(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if got := b.counted(b.probes, "a/hangs0"); got != 0 {
		t.Errorf("got %d answers of a probe that was cancelled, want none", got)
	}
}

// TestProbeTimeout gives the probe's context an end.
func TestProbeTimeout(t *testing.T) {
	b := newBed(t)
	b.r.SetProbeTimeout(time.Millisecond)
	probes := make(chan struct{}, 8)
	b.r.Probe = func(ctx context.Context, _ provider.Cluster, _ provider.Candidate) probe.Report {
		probes <- struct{}{}
		<-ctx.Done()
		return probe.Report{Steps: []probe.Step{{Phase: probe.PhaseTCP, Err: ctx.Err()}}}
	}
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the answer", func() bool { return b.Wrote("PATCH clusters") == 1 })
	if got := len(probes); got != 1 {
		t.Errorf("got %d probes, want 1", got)
	}
}

// TestNoCRD: it says what is missing.
func TestNoCRD(t *testing.T) {
	b := newBed(t)
	b.Serve("cluster.x-k8s.io", nil)
	mgr, err := ctrl.NewManager(b.Config(), b.opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.r.SetupWithManager(t.Context(), mgr, controller.Options{}); !errors.Is(err, controllers.ErrNoCRD) {
		t.Errorf("got %v, want ErrNoCRD", err)
	}
}

// TestUnlabelledSecret is in nobody's cache: it is told of, and stays.
func TestUnlabelledSecret(t *testing.T) {
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.Set("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "a", "name": "one-kubeconfig"},
		"data": map[string]any{"value": "Y2FuYXJ5"},
	})
	b.run(t)
	b.Until(t, "an Event, and the condition", func() bool { return b.Wrote("POST events") == 1 && b.reason("one") == provider.ReasonWriteFailed })
	if got := b.eventReasons(); got[0] != provider.ReasonWriteFailed {
		t.Errorf("got %v, want %s", got, provider.ReasonWriteFailed)
	}
	if got := b.value(kubeconfigOf("a", "one"), "value"); got != "canary" {
		t.Errorf("got %q, want the user's Secret untouched", got)
	}
}

// reason returns that of the condition of a Cluster in the namespace a.
func (b *bed) reason(name string) string {
	list, _, _ := unstructured.NestedSlice(b.Get(apitest.Named("clusters", "a", name)).Object, "status", "conditions")
	for _, c := range list {
		if m := c.(map[string]any); m["type"] == provider.ConditionRoute {
			return fmt.Sprint(m["reason"])
		}
	}
	return ""
}

// TestWritesFail: a write that the API server refuses is told of once, with its cause
// and without the object, and tried less and less often, whatever happens meanwhile.
func TestWritesFail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		told   bool // at once
	}{
		{"denied", http.StatusForbidden, true},
		{"invalid", http.StatusUnprocessableEntity, true},
		{"internal error", http.StatusInternalServerError, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			one := apitest.Named("clusters", "a", "one")
			b.Set("clusters", cluster("a", "one", route("p1:1")))
			b.run(t)
			b.Until(t, "the Secret", func() bool { return b.reason("one") == "Passed" })
			var tries atomic.Int32
			b.SetFault(func(r *http.Request) int {
				if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "-kubeconfig") {
					tries.Add(1)
					b.Touch()
					return tt.status
				}
				return 0
			})
			began := time.Now()
			b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationProxyURL, "http://p2:1") })
			want := int32(1)
			if !tt.told {
				want = 3
			}
			b.Until(t, "the condition", func() bool { return b.reason("one") == provider.ReasonWriteFailed })
			if got := tries.Load(); got > want {
				t.Errorf("got %d tries before the condition, want %d", got, want)
			}
			// What happens to the objects leads to plans, and to no tries.
			for i := range 10 {
				plans := b.counted(b.plans, "a/one")
				b.Change(kubeconfigOf("a", "one"), func(u *unstructured.Unstructured) { annotate(u, "foreign", fmt.Sprint(i)) })
				b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/one") > plans })
			}
			// One second, two, four.
			most := 1 + int32(math.Log2(time.Since(began).Seconds()+1))
			if got := tries.Load(); got > most {
				t.Errorf("got %d tries in %v, want at most %d", got, time.Since(began), most)
			}
			if got := b.Wrote("PATCH clusters"); got != 2 {
				t.Errorf("got %d writes of the condition, want 2", got)
			}
			b.SetFault(nil)
			b.Until(t, "the switch", func() bool { return b.has(kubeconfigOf("a", "one"), "http://p2:1")() && b.reason("one") == "Passed" })
			b.Until(t, "the Events", func() bool { return b.Wrote("POST events") == 3 })
			if got := b.eventReasons(); !slices.Equal(got, []string{"Switched", "Switched", provider.ReasonWriteFailed}) {
				t.Errorf("got the Events %v, want one of the failure", got)
			}
		})
	}
}
