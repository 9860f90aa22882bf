package controllers_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// bed is an API server, and a reconciler in a manager that watches it.
type bed struct {
	*apitest.Server
	t    *testing.T
	r    *controllers.KubeconfigReconciler
	opts ctrl.Options

	workers int // 4 if 0

	mu     sync.Mutex // guards the fields below
	plans  map[string]int
	probes map[string]int
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, Server: apitest.New(t), plans: map[string]int{}, probes: map[string]int{}}
	b.Set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a"}})
	b.r = &controllers.KubeconfigReconciler{Config: provider.Config{Name: "test"}}
	b.setPlan(planSimply)
	b.setProbe(func(context.Context, provider.Cluster) probe.Report { return passed })
	b.opts = ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}
	return b
}

// setPlan counts the plans.
func (b *bed) setPlan(plan func(provider.Cluster, provider.Secrets, provider.Config) (provider.Action, error)) {
	b.r.SetPlan(func(c provider.Cluster, s provider.Secrets, config provider.Config) (provider.Action, error) {
		defer b.count(b.plans, c.Namespace+"/"+c.Name)
		return plan(c, s, config)
	})
}

// setProbe counts the probes that have an answer.
func (b *bed) setProbe(answer func(context.Context, provider.Cluster) probe.Report) {
	b.r.Probe = func(ctx context.Context, c provider.Cluster, _ provider.Candidate) probe.Report {
		report := answer(ctx, c)
		if ctx.Err() == nil {
			b.count(b.probes, c.Namespace+"/"+c.Name)
		}
		return report
	}
}

func (b *bed) count(m map[string]int, key string) {
	b.mu.Lock()
	m[key]++
	b.mu.Unlock()
	b.Touch()
}

// counted reads one of the counts.
func (b *bed) counted(m map[string]int, key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return m[key]
}

// manager makes a manager with the reconciler.
func (b *bed) manager(t *testing.T) ctrl.Manager {
	t.Helper()
	opts := b.opts
	if opts.Cache.ByObject == nil {
		opts.Cache = controllers.CacheOptions(b.r.Namespaces...)
	}
	mgr, err := ctrl.NewManager(b.Config(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.r.SetupWithManager(t.Context(), mgr, controller.Options{MaxConcurrentReconciles: cmp.Or(b.workers, 4)}); err != nil {
		t.Fatal(err)
	}
	return mgr
}

// run starts a manager. stop ends it, and returns what it returned.
func (b *bed) run(t *testing.T) (stop func() error) {
	t.Helper()
	return b.runManager(t, b.manager(t))
}

func (b *bed) runManager(t *testing.T, mgr ctrl.Manager) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- mgr.Start(ctx)
		b.count(b.plans, "ended")
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil && !strings.Contains(err.Error(), "leader election lost") {
			t.Errorf("got %v of the manager, want nil", err)
		}
		if t.Failed() {
			t.Logf("writes: %v; plans: %v", b.AllWrites(), b.plans)
		}
	})
	return stop
}

func cluster(namespace, name string, annotations map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
		"metadata": map[string]any{"namespace": namespace, "name": name, "annotations": annotations},
		"spec": map[string]any{
			"controlPlaneEndpoint": map[string]any{"host": "192.0.2.1", "port": int64(6443)},
			"controlPlaneRef":      map[string]any{"kind": "KubeadmControlPlane", "name": name},
		},
	}
}

func route(name string) map[string]any {
	return map[string]any{provider.AnnotationProxyURL: "http://" + name}
}

// planSimply wants a Secret whose value is the proxy, once a probe of it has
// passed, and keeps all else.
func planSimply(c provider.Cluster, s provider.Secrets, config provider.Config) (provider.Action, error) {
	settings, err := provider.Resolve(c, config)
	if err != nil {
		return provider.Action{}, err
	}
	want := settings.ProxyURL
	if s.Route != nil {
		want += "/" + string(s.Route.Data[provider.KeyPassword])
	}
	for _, e := range c.MoreEndpoints {
		want += "," + e.String()
	}
	result, ok := config.Results[want]
	if !ok {
		return provider.Action{Probe: []provider.Candidate{{Key: want, Config: clientcmdapi.NewConfig()}}}, nil
	}
	a := provider.Action{Managed: true, Condition: &metav1.Condition{
		Type: provider.ConditionRoute, Status: metav1.ConditionTrue, Reason: "Passed", Message: fmt.Sprint("probed: ", result.Report.OK()),
	}}
	event := []provider.Event{{Type: corev1.EventTypeNormal, Reason: "Switched", Message: want}}
	switch {
	case s.Kubeconfig == nil:
		a.Events = event
		a.Create = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: c.Namespace, Name: c.Name + "-kubeconfig",
				Labels: map[string]string{kubeconfig.ClusterNameLabel: c.Name},
			},
			Data: map[string][]byte{"value": []byte(want)},
		}
	case string(s.Kubeconfig.Data["value"]) != want:
		a.Events = event
		a.Update = s.Kubeconfig.DeepCopy()
		a.Update.Data = maps.Clone(a.Update.Data)
		a.Update.Data["value"] = []byte(want)
	}
	return a, nil
}

var passed = probe.Report{Steps: []probe.Step{{Phase: probe.PhaseReady}}}

// eventReasons returns the reasons of all Events, sorted.
func (b *bed) eventReasons() []string {
	var reasons []string
	for _, e := range b.List("events") {
		reasons = append(reasons, fmt.Sprint(e.Object["reason"]))
	}
	return slices.Sorted(slices.Values(reasons))
}
