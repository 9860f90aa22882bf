package controllers_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

const (
	canary = "Canary7f3aSecret"
	proxy  = "http://user:" + canary + "@192.168.52.220:3128"
	other  = "http://other:" + canary + "2@proxy.test:1"
	people = "172.16.0.0/16,internal.corpdomain.net,example.com"
)

var all = []string{"create Secret org/one-systemd-proxy", "create Secret org/one-cluster-values", "create ConfigMap org/one-cluster-values"}

// proxyBed is an API server, and a manager with a ProxyReconciler that watches it.
type proxyBed struct {
	*apitest.Server
	t          testing.TB
	reconciler controllers.ProxyReconciler
	cache      cache.Options // the manager's
	workers    int

	mu            sync.Mutex // guards the fields below
	plans         map[string]int
	order         []string // of the writes that succeeded
	errs          []error
	installations []error
	text          strings.Builder // all that was logged
}

func newProxyBed(t testing.TB) *proxyBed {
	b := &proxyBed{t: t, Server: apitest.New(t), plans: map[string]int{}, cache: controllers.CacheOptions(), workers: 8}
	b.reconciler.Config.Installation = "system/proxy"
	return b
}

// proxyLog notes what a manager logs.
type proxyLog struct {
	*proxyBed
	values []any
}

func (l proxyLog) Init(logr.RuntimeInfo)        {}
func (l proxyLog) Enabled(int) bool             { return true }
func (l proxyLog) WithName(string) logr.LogSink { return l }
func (l proxyLog) WithValues(values ...any) logr.LogSink {
	return proxyLog{l.proxyBed, slices.Concat(l.values, values)}
}
func (l proxyLog) Info(_ int, message string, kv ...any)      { l.note(message, nil, kv) }
func (l proxyLog) Error(err error, message string, kv ...any) { l.note(message, err, kv) }

func (l proxyLog) note(message string, err error, pairs []any) {
	values := map[any]any{}
	for pair := range slices.Chunk(slices.Concat(l.values, pairs), 2) {
		values[pair[0]] = pair[1]
	}
	l.mu.Lock()
	fmt.Fprintln(&l.text, message, err, values)
	switch {
	case message == "planned":
		l.plans[fmt.Sprint(values["namespace"], "/", values["name"])]++
	case message == "wrote":
		l.order = append(l.order, fmt.Sprint(values["verb"], " ", values["target"]))
	case strings.HasPrefix(message, "the installation's Secret can"):
		l.installations = append(l.installations, err)
	case err != nil:
		l.errs = append(l.errs, err)
	}
	l.mu.Unlock()
	l.Touch()
}

func (b *proxyBed) planned(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plans[key]
}

// since returns the writes after the first n.
func (b *proxyBed) since(n int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.order[n:len(b.order):len(b.order)]
}

func (b *proxyBed) manager() manager.Manager {
	b.t.Helper()
	yes := true
	mgr, err := manager.New(b.Config(), manager.Options{
		Cache: b.cache, Logger: logr.New(proxyLog{proxyBed: b}), Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &yes},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return mgr
}

// run returns a function that ends the manager, and returns what Start returned.
func (b *proxyBed) run() (stop func() error) {
	b.t.Helper()
	mgr := b.manager()
	ctx, cancel := context.WithCancel(b.t.Context())
	if err := b.reconciler.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: b.workers}); err != nil {
		b.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- mgr.Start(ctx)
		b.Touch()
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	b.t.Cleanup(func() {
		if err := stop(); err != nil {
			b.t.Errorf("got %v of Start, want nil", err)
		}
		if b.t.Failed() {
			b.t.Logf("errors: %v; writes: %v; plans: %v", errors.Join(b.errs...), b.order, b.plans)
		}
	})
	return stop
}

func proxiedCluster(namespace, name string) map[string]any {
	return map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"controlPlaneEndpoint": map[string]any{"host": "178.170.32.59", "port": int64(6443)},
			"clusterNetwork": map[string]any{
				"pods":          map[string]any{"cidrBlocks": []any{"100.96.0.0/11"}},
				"services":      map[string]any{"cidrBlocks": []any{"100.64.0.0/13"}},
				"serviceDomain": "cluster.local",
			},
		},
	}
}

func secretWith(namespace, name string, labels map[string]any, pairs ...string) map[string]any {
	data := map[string]any{}
	for pair := range slices.Chunk(pairs, 2) {
		data[pair[0]] = base64.StdEncoding.EncodeToString([]byte(pair[1]))
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": data,
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": labels},
	}
}

// install makes or changes the installation's Secret.
func (b *proxyBed) install(url string, more ...string) {
	pairs := append([]string{"HTTP_PROXY", url, "HTTPS_PROXY", url, "NO_PROXY", people}, more...)
	b.Set("secrets", secretWith("system", "proxy", nil, pairs...))
}

func (b *proxyBed) override(pairs ...string) {
	b.Set("secrets", secretWith("org", "one-proxy-override", map[string]any{propagate.LabelOverride: ""}, pairs...))
}

var (
	systemd    = apitest.Named("secrets", "org", "one-systemd-proxy")
	valuesOf   = apitest.Named("secrets", "org", "one-cluster-values")
	factsOf    = apitest.Named("configmaps", "org", "one-cluster-values")
	one        = apitest.Named("clusters", "org", "one")
	overrideOf = apitest.Named("secrets", "org", "one-proxy-override")
	installed  = apitest.Named("secrets", "system", "proxy")
)

// value returns the value of a key of a Secret, or "".
func (b *proxyBed) value(key apitest.Key, name string) string {
	u := b.Get(key)
	if u == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(u.Object, "data", name)
	value, _ := base64.StdEncoding.DecodeString(text)
	return string(value)
}

// current says whether machines and apps have the proxy.
func (b *proxyBed) current(url string) func() bool {
	return func() bool {
		return strings.Contains(b.value(systemd, "containerdProxy"), url+`"`) && strings.Contains(b.value(valuesOf, "values"), url+"\n") && b.Get(factsOf) != nil
	}
}

// settledProxies is a bed with a Cluster whose objects are written, and a reconciler
// that has seen all that has happened: what it plans next is for what comes next.
func settledProxies(t testing.TB) *proxyBed {
	b := newProxyBed(t)
	b.install(proxy)
	b.Set("clusters", proxiedCluster("org", "one"))
	stop := b.run()
	b.Until(t, "the objects, and what is logged", func() bool { return b.current(proxy)() && len(b.since(0)) == len(all) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.errs = nil // a write that the end has cancelled
	b.mu.Unlock()
	b.workers = 1
	b.run()
	paused := proxiedCluster("org", "mark")
	paused["spec"].(map[string]any)["paused"] = true
	ours := map[string]any{propagate.LabelManagedBy: "causeway"}
	for i := range 2 { // what was queued while it was looked at comes after the first
		for _, mark := range []func(){
			func() {
				paused["spec"].(map[string]any)["controlPlaneEndpoint"] = map[string]any{"host": fmt.Sprint("192.0.2.", i)}
				b.Set("clusters", paused)
			},
			func() { b.Set("secrets", secretWith("org", "mark-systemd-proxy", ours, "round", fmt.Sprint(i))) },
			func() {
				b.Set("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"round": fmt.Sprint(i)},
					"metadata": map[string]any{"namespace": "org", "name": "mark-cluster-values", "labels": ours}})
			},
			func() { b.install(proxy, []string{"values", "http_proxy: " + proxy}[:2*(1-i)]...) },
		} {
			plans := b.planned("org/mark")
			mark()
			b.Until(t, "the mark", func() bool { return b.planned("org/mark") > plans })
		}
	}
	return b
}

// A password that changes: the time until 500 Clusters have it, two Secrets
// each.
func BenchmarkProxyPassword(b *testing.B) {
	const clusters = 500
	bed := newProxyBed(b)
	bed.install(proxy)
	for i := range clusters {
		bed.Set("clusters", proxiedCluster("org", fmt.Sprint("c", i)))
	}
	bed.run()
	bed.Until(b, "the objects", func() bool { return len(bed.since(0)) == 3*clusters })
	for n := 1; b.Loop(); n++ {
		bed.install(fmt.Sprintf("http://user:p%d@proxy.test:3128", n))
		bed.Until(b, "the change", func() bool { return len(bed.since(0)) == (3+2*n)*clusters })
	}
}
