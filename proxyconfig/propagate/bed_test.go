package propagate_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// bed is an API server, and a Propagator that watches it.
type bed struct {
	*apitest.Server
	t    testing.TB
	opts propagate.Options

	mu            sync.Mutex // guards the fields below
	plans         map[string]int
	order         []string // of the writes that succeeded
	errs          []error
	installations []error
	text          strings.Builder // all that hooks were told
}

func newBed(t testing.TB) *bed {
	b := &bed{t: t, Server: apitest.New(t), plans: map[string]int{}}
	b.opts = propagate.Options{REST: b.Config(), Config: propagate.Config{Installation: "system/proxy"}}
	b.opts.Hooks = propagate.Hooks{
		Installation: func(err error) {
			b.told(func() { b.installations = append(b.installations, err) }, err)
		},
		Planned: func(c types.NamespacedName, _ time.Duration, err error) {
			b.told(func() { b.plans[c.String()]++ }, err)
		},
		PlannedEnv: func(namespace string, err error) {
			b.told(func() { b.plans["namespace "+namespace]++ }, err)
		},
		Wrote: func(object string, kind propagate.Write, err error) {
			b.told(func() {
				if err == nil {
					b.order = append(b.order, string(kind)+" "+object)
				} else {
					b.errs = append(b.errs, err)
				}
			}, err)
		},
		Error: func(err error) { b.told(func() { b.errs = append(b.errs, err) }, err) },
	}
	return b
}

func (b *bed) told(note func(), err error) {
	b.mu.Lock()
	note()
	if err != nil {
		b.text.WriteString(err.Error() + "\n")
	}
	b.mu.Unlock()
	b.Touch()
}

func (b *bed) planned(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plans[key]
}

// since returns the writes after the first n.
func (b *bed) since(n int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.order[n:len(b.order):len(b.order)]
}

// running is a Propagator whose Run was called.
type running struct {
	*propagate.Propagator
	stop func() error // ends Run, and returns what it returned
}

func (b *bed) run() *running {
	b.t.Helper()
	p, err := propagate.New(b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- p.Run(ctx)
		b.Touch()
	}()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	b.t.Cleanup(func() {
		if err := stop(); err != nil && !errors.Is(err, propagate.ErrLostLease) {
			b.t.Errorf("got %v of Run, want nil", err)
		}
		if b.t.Failed() {
			b.t.Logf("errors: %v; writes: %v; plans: %v", errors.Join(b.errs...), b.order, b.plans)
		}
	})
	return &running{p, stop}
}

func cluster(namespace, name string) map[string]any {
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

func secret(namespace, name string, labels map[string]any, pairs ...string) map[string]any {
	data := map[string]any{}
	for key, value := range source(namespace, name, pairs).Data {
		data[key] = base64.StdEncoding.EncodeToString(value)
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": data,
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": labels},
	}
}

// install makes or changes the installation's Secret.
func (b *bed) install(url string) {
	b.Set("secrets", secret("system", "proxy", nil, "HTTP_PROXY", url, "HTTPS_PROXY", url, "NO_PROXY", people))
}

func (b *bed) override(pairs ...string) {
	b.Set("secrets", secret("org", "one-proxy-override", map[string]any{propagate.LabelOverride: ""}, pairs...))
}

var (
	systemd    = apitest.Named("secrets", "org", "one-systemd-proxy")
	valuesOf   = apitest.Named("secrets", "org", "one-cluster-values")
	factsOf    = apitest.Named("configmaps", "org", "one-cluster-values")
	one        = apitest.Named("clusters", "org", "one")
	overrideOf = apitest.Named("secrets", "org", "one-proxy-override")
	installed  = apitest.Named("secrets", "system", "proxy")
)

// value returns a key of a Secret; "" if there is none.
func (b *bed) value(key apitest.Key, name string) string {
	u := b.Get(key)
	if u == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(u.Object, "data", name)
	value, _ := base64.StdEncoding.DecodeString(text)
	return string(value)
}

// current says whether machines and apps have the proxy.
func (b *bed) current(url string) func() bool {
	return func() bool {
		return strings.Contains(b.value(systemd, "containerdProxy"), url+`"`) && strings.Contains(b.value(valuesOf, "values"), url+"\n") && b.Get(factsOf) != nil
	}
}

// settled is a bed with a Cluster whose objects are written, and a Propagator
// that has seen all that has happened: what it plans next is for what comes next.
func settled(t testing.TB) *bed {
	b := newBed(t)
	b.install(proxy)
	b.Set("clusters", cluster("org", "one"))
	first := b.run()
	b.Until(t, "the objects, and what hooks are told", func() bool { return b.current(proxy)() && len(b.since(0)) == len(all) })
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.errs = nil // a write that the end has cancelled
	b.mu.Unlock()
	b.opts.Workers = 1
	b.run()
	paused := cluster("org", "mark")
	paused["spec"].(map[string]any)["paused"] = true
	ours := map[string]any{propagate.LabelManagedBy: "causeway"}
	for i := range 2 { // what was queued while it was looked at comes after the first
		for _, mark := range []func(){
			func() { b.Set("clusters", paused) },
			func() { b.Set("secrets", secret("org", "mark-systemd-proxy", ours, "round", fmt.Sprint(i))) },
			func() {
				b.Set("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"round": fmt.Sprint(i)},
					"metadata": map[string]any{"namespace": "org", "name": "mark-cluster-values", "labels": ours}})
			},
		} {
			plans := b.planned("org/mark")
			mark()
			paused["metadata"].(map[string]any)["annotations"] = map[string]any{"cluster.x-k8s.io/paused": fmt.Sprint(i)}
			b.Until(t, "the mark", func() bool { return b.planned("org/mark") > plans })
		}
	}
	return b
}
