package controllers_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const testKindInterval = 100 * time.Millisecond

// requestLog has what was read of an API server.
type requestLog struct {
	*bed
	mu      sync.Mutex // guards the fields below
	reads   map[string]int
	watches map[string]context.Context // the last one of each path
	refused string                     // a part of the paths that may not be read
}

func logRequests(b *bed) *requestLog {
	l := &requestLog{bed: b, reads: map[string]int{}, watches: map[string]context.Context{}}
	b.SetFault(func(r *http.Request) int {
		l.mu.Lock()
		defer l.mu.Unlock()
		path, parts := r.URL.Path, strings.Count(r.URL.Path, "/")
		switch {
		case r.Method != http.MethodGet:
		case path == "/api" || path == "/api/v1" || strings.HasPrefix(path, "/apis") && parts <= 3:
			l.reads["discovery"]++
		case r.URL.Query().Get("watch") != "":
			l.watches[path] = r.Context()
			l.Touch()
		default:
			l.reads[path[strings.LastIndex(path, "/")+1:]]++
		}
		if l.refused != "" && strings.Contains(path, l.refused) {
			return http.StatusForbidden
		}
		return 0
	})
	return l
}

func (l *requestLog) read(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads[what]
}

// watched returns the context of the last watch of the resource.
func (l *requestLog) watched(group, resource string) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watches["/apis/"+group+"/v1beta2/"+resource]
}

func infrastructureRef(group, kind string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		ref := map[string]any{"apiGroup": group, "kind": kind, "name": "one"}
		unstructured.SetNestedMap(u.Object, ref, "spec", "infrastructureRef")
	}
}

// TestMadeUpKinds: one search is made for all kinds that nobody serves, again and again
// less often, and a watch ends when no Cluster names the kind.
func TestMadeUpKinds(t *testing.T) {
	const kinds, group = 300, "infrastructure.cluster.x-k8s.io"
	b := newBed(t)
	b.r.SetKindInterval(testKindInterval)
	log := logRequests(b)
	one := apitest.Named("clusters", "a", "one")
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.Set("testclusters", testCluster("192.0.2.2"))
	b.run(t)
	b.Until(t, "the condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	goroutines, requests, began := runtime.NumGoroutine(), log.read("discovery"), time.Now()
	for n := range kinds {
		u := &unstructured.Unstructured{Object: cluster("a", fmt.Sprint("made-up", n), route("p1:1"))}
		infrastructureRef(group, fmt.Sprint("MadeUp", n))(u)
		b.Set("clusters", u.Object)
	}
	b.Until(t, "plans without it", func() bool { return b.Wrote("PATCH clusters") == kinds+1 })
	b.Change(one, infrastructureRef(group, "TestCluster"))
	b.Until(t, "the kind that there is", b.has(kubeconfigOf("a", "one"), "http://p1:1,192.0.2.2:6443"))
	if more := runtime.NumGoroutine() - goroutines; more > 40 {
		t.Errorf("got %d goroutines more for %d kinds, want few", more, kinds)
	}
	searches := int(time.Since(began)/testKindInterval) + 2
	if asked := log.read("discovery") - requests; asked > 6*searches {
		t.Errorf("got %d requests for %d kinds, want at most %d searches of 6", asked, kinds, searches)
	}
	for range 2 {
		var watch context.Context
		b.Until(t, "the watch", func() bool { watch = log.watched(group, "testclusters"); return watch != nil && watch.Err() == nil })
		b.Change(one, func(u *unstructured.Unstructured) {
			unstructured.RemoveNestedField(u.Object, "spec", "infrastructureRef")
		})
		select {
		case <-watch.Done():
		case <-time.After(time.Minute):
			t.Fatal("the watch goes on, want none of a kind that no Cluster names")
		}
		b.Until(t, "the Secret without it", b.has(kubeconfigOf("a", "one"), "http://p1:1"))
		b.Change(one, infrastructureRef(group, "TestCluster"))
		b.Until(t, "another watch", b.has(kubeconfigOf("a", "one"), "http://p1:1,192.0.2.2:6443"))
	}
}

// TestForeignKinds: kinds that are no infrastructure, or that may not be read, are not
// watched.
func TestForeignKinds(t *testing.T) {
	for _, test := range []struct {
		name, group, kind, resource string
		refused, event              string
	}{
		{name: "workloads", group: "apps", kind: "Deployment", resource: "deployments", event: "apps is Kubernetes' own"},
		{name: "Events", group: "events.k8s.io", kind: "Event", resource: "events", event: "events.k8s.io is Kubernetes' own"},
		{name: "a group in capitals", group: "Example.test", kind: "Thing", resource: "things", event: "the API group is no DNS name"},
		{name: "no kind", group: "example.test", kind: "a\u009bb", resource: "things", event: "the kind is none"},
		{name: "may not be read", group: "example.test", kind: "Thing", resource: "things", refused: "/things"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			log := logRequests(b)
			log.refused = test.refused
			b.r.SetKindInterval(testKindInterval)
			b.Serve(test.group, &apitest.Group{Version: "v1beta2", Kinds: map[string]string{test.resource: test.kind}})
			u := &unstructured.Unstructured{Object: cluster("a", "one", route("p1:1"))}
			infrastructureRef(test.group, test.kind)(u)
			b.Set("clusters", u.Object)
			b.run(t)
			b.Until(t, "a plan without it", func() bool { return b.Wrote("PATCH clusters") == 1 })
			told := func() bool {
				return slices.ContainsFunc(b.List("events"), func(e *unstructured.Unstructured) bool {
					return e.Object["reason"] == "InvalidInfrastructure" && strings.Contains(fmt.Sprint(e.Object["message"]), test.event)
				})
			}
			if test.event != "" {
				b.Until(t, "the Event", told)
			}
			if got := log.read(test.resource); got > 6 || (got > 0) != (test.refused != "") || log.watched(test.group, test.resource) != nil {
				t.Errorf("got %d reads, want few of one that may not be read, none of others, and no watch", got)
			}
		})
	}
}

// TestSlowNamespace: a namespace whose plans are slow leaves a worker to others.
func TestSlowNamespace(t *testing.T) {
	b := newBed(t)
	b.Set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "slow"}})
	var mu sync.Mutex // guards the fields below
	working, most := 0, 0
	release := make(chan struct{})
	b.setPlan(func(c provider.Cluster, s provider.Secrets, config provider.Config) (provider.Action, error) {
		if c.Namespace != "slow" {
			return planSimply(c, s, config)
		}
		mu.Lock()
		working++
		most = max(most, working)
		mu.Unlock()
		b.Touch()
		<-release
		mu.Lock()
		working--
		mu.Unlock()
		return provider.Action{}, nil
	})
	for n := range 50 {
		b.Set("clusters", cluster("slow", fmt.Sprint(n), nil))
	}
	b.run(t)
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end) // before the manager's end
	b.Until(t, "slow plans", func() bool { mu.Lock(); defer mu.Unlock(); return working >= 3 })
	for n := range 5 {
		b.Set("clusters", cluster("a", fmt.Sprint(n), route("p1:1")))
	}
	b.Until(t, "the others", func() bool { return b.Wrote("PATCH clusters") == 5 })
	mu.Lock()
	if most != 3 {
		t.Errorf("got %d workers of 4 for one namespace, want 3", most)
	}
	mu.Unlock()
	end() // some have a second plan
	b.Until(t, "all slow plans", func() bool {
		for n := range 50 {
			if b.counted(b.plans, fmt.Sprint("slow/", n)) == 0 {
				return false
			}
		}
		return true
	})
}

// TestProbeTurns: a namespace with many probes that hang does not come first forever.
func TestProbeTurns(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "slow"}})
	var mu sync.Mutex // guards started
	started := 0
	at := make(chan int, 1)
	b.setProbe(func(ctx context.Context, c provider.Cluster) probe.Report {
		mu.Lock()
		defer mu.Unlock()
		if started++; c.Namespace == "a" {
			at <- started
			return passed
		}
		mu.Unlock()
		b.Touch()
		<-ctx.Done()
		mu.Lock()
		return passed
	})
	hang := func(from, to int) {
		for n := from; n < to; n++ {
			b.Set("clusters", cluster("slow", fmt.Sprint(n), route("p1:1")))
		}
	}
	hang(0, 32)
	b.run(t)
	b.Until(t, "probes that hang", func() bool { mu.Lock(); defer mu.Unlock(); return started == 32 })
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.Until(t, "the other's plan", func() bool { return b.counted(b.plans, "a/one") == 1 })
	mu.Lock()
	before := started
	mu.Unlock()
	hang(32, 132)
	b.Until(t, "all plans", func() bool { return b.counted(b.plans, "slow/131") == 1 })
	if got := <-at; got > before+34 { // 32 places become free at once
		t.Errorf("got the probe as number %d after %d, want 34 later at most", got, before)
	}
}

// TestManyRoutes: a Cluster whose route is rewritten again and again has a few probes, and
// after some turns at once it has one in a second.
func TestManyRoutes(t *testing.T) {
	t.Parallel()
	const routes = 22
	b := newBed(t)
	var mu sync.Mutex // guards started
	started := 0
	b.setProbe(func(ctx context.Context, _ provider.Cluster) probe.Report {
		mu.Lock()
		started++
		mu.Unlock()
		b.Touch()
		<-ctx.Done()
		return passed
	})
	b.Set("clusters", cluster("a", "one", route("p0:1")))
	b.run(t)
	began, one := time.Now(), apitest.Named("clusters", "a", "one")
	for n := range routes {
		plans := b.counted(b.plans, "a/one")
		b.Change(one, func(u *unstructured.Unstructured) {
			annotate(u, provider.AnnotationProxyURL, fmt.Sprintf("http://p%d:1", n+1))
		})
		b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/one") > plans })
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("%d plans took %v, want a second each after the first 20", routes, took)
	}
	b.Until(t, "probes", func() bool { mu.Lock(); defer mu.Unlock(); return started >= 16 })
	b.Set("clusters", cluster("a", "two", route("p1:1")))
	b.Until(t, "that of another Cluster", func() bool { mu.Lock(); defer mu.Unlock(); return started >= 17 })
	mu.Lock()
	defer mu.Unlock()
	if started != 17 {
		t.Errorf("got %d probes of %d routes, want 16", started-1, routes)
	}
}

// TestTurns: an object that changes all the time does not take the turns of another one.
func TestTurns(t *testing.T) {
	if turns, kept := controllers.TurnsIn(time.Minute); turns != 20+59 || kept != 1 {
		t.Errorf("got %d turns in a minute, and %d objects that are remembered; want 79, and 1", turns, kept)
	}
}

// TestWritesRemembered: those of Clusters that are gone, too, are forgotten.
func TestWritesRemembered(t *testing.T) {
	if got := controllers.WritesRemembered(1000); got != 61 {
		t.Errorf("got %d writes, want those of a minute", got)
	}
}

// TestEventsRemembered: texts of one object don't push out those of others.
func TestEventsRemembered(t *testing.T) {
	if got, again, other := controllers.EventsRemembered(1000); got != 32 || again || other {
		t.Errorf("got %d (told again: %v, %v), want 32, and none told again", got, again, other)
	}
}
