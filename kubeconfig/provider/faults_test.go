package provider_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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

// TestServerErrors: what fails is planned anew, until it is written, once.
func TestServerErrors(t *testing.T) {
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	failed := map[string]int{}
	b.SetFault(func(r *http.Request) int {
		b.mu.Lock()
		defer b.mu.Unlock()
		what := r.Method + " " + r.URL.Path
		if r.URL.Query().Get("watch") != "" || failed[what] >= 2 {
			return 0
		}
		failed[what]++
		return http.StatusInternalServerError
	})
	b.run(t)
	b.Until(t, "the condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	want := map[string]int{"POST secrets": 1, "PATCH clusters": 1}
	got := b.AllWrites()
	delete(got, "POST events") // is not tried again
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestWatchGap: what was missed is found by listing again.
func TestWatchGap(t *testing.T) {
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
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, err := range b.errs {
				t.Errorf("got %v, want no conflict", err)
			}
		})
	}
}

// TestShortLived: a Secret that was deleted before the cache showed it is made
// again, and not waited for.
func TestShortLived(t *testing.T) {
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

// TestHangingProbes block neither the workers nor other probes, and end with
// their time, or with Run.
func TestHangingProbes(t *testing.T) {
	b := newBed(t)
	b.opts.Workers, b.opts.Probes, b.opts.ProbeTimeout = 1, 2, time.Hour
	hanging := make(chan struct{})
	b.opts.Probe = func(ctx context.Context, c provider.Cluster, _ *clientcmdapi.Config) probe.Report {
		if c.Name == "hangs" {
			close(hanging)
			<-ctx.Done()
		}
		return passed
	}
	b.Set("clusters", cluster("a", "hangs", route("p1:1")))
	run := b.run(t)
	<-hanging
	for _, name := range []string{"one", "two", "three"} {
		b.Set("clusters", cluster("a", name, route("p1:1")))
	}
	b.Until(t, "the others", func() bool { return b.Wrote("PATCH clusters") == 3 })
	// Its Cluster is looked at; a second probe of the same is not started.
	plans := b.counted(b.plans, "a/hangs")
	b.Change(apitest.Named("clusters", "a", "hangs"), func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationGrace, "1m") })
	b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/hangs") > plans })
	if err := run.stop(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if got := b.counted(b.probes, "a/hangs"); got != 0 {
		t.Errorf("got %d answers of a probe that was cancelled, want none", got)
	}
}

// TestProbeTimeout gives the probe's context an end.
func TestProbeTimeout(t *testing.T) {
	b := newBed(t)
	b.opts.ProbeTimeout = time.Millisecond
	b.opts.Probe = func(ctx context.Context, _ provider.Cluster, _ *clientcmdapi.Config) probe.Report {
		<-ctx.Done()
		return probe.Report{Steps: []probe.Step{{Phase: probe.PhaseTCP, Err: ctx.Err()}}}
	}
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the answer", func() bool { return b.Wrote("PATCH clusters") == 1 })
	if got := b.counted(b.probes, "a/one"); got != 1 {
		t.Errorf("got %d probes, want 1", got)
	}
}

// TestNoCRD: it says what is missing, and goes on when it is there.
func TestNoCRD(t *testing.T) {
	b := newBed(t)
	crd := b.Serve("cluster.x-k8s.io", nil)
	run := b.run(t)
	b.Until(t, "the error", func() bool { return b.errorIs(provider.ErrNoCRD) })
	if code, text := ask(run.Readyz()); code != http.StatusServiceUnavailable || !strings.Contains(text, "clusters.cluster.x-k8s.io") {
		t.Errorf("got %d %q, want 503 and the CRD's name", code, text)
	}
	b.Serve("cluster.x-k8s.io", crd)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.Until(t, "the Secret", func() bool { return b.Get(kubeconfigOf("a", "one")) != nil })
	for name, h := range map[string]http.Handler{"healthz": run.Healthz(), "readyz": run.Readyz()} {
		if code, text := ask(h); code != http.StatusOK {
			t.Errorf("got %d %q of %s, want 200", code, text, name)
		}
	}
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	for name, h := range map[string]http.Handler{"healthz": run.Healthz(), "readyz": run.Readyz()} {
		if code, _ := ask(h); code != http.StatusServiceUnavailable {
			t.Errorf("got %d of %s after the end, want 503", code, name)
		}
	}
	if err := run.Run(t.Context()); !errors.Is(err, provider.ErrRan) {
		t.Errorf("got %v of a second Run, want ErrRan", err)
	}
}

func ask(h http.Handler) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code, w.Body.String()
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
	b.Until(t, "an Event", func() bool { return b.Wrote("POST events") == 1 })
	if got := b.List("events")[0].Object["reason"]; got != "SecretNotLabelled" {
		t.Errorf("got %v, want SecretNotLabelled", got)
	}
	if got := b.value(kubeconfigOf("a", "one"), "value"); got != "canary" {
		t.Errorf("got %q, want the user's Secret untouched", got)
	}
}
