package provider_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// bed is an API server, and a Provider that watches it.
type bed struct {
	*apitest.Server
	t    *testing.T
	opts provider.Options

	mu     sync.Mutex // guards the fields below
	plans  map[string]int
	probes map[string]int
	errs   []error
	hooked map[string]int // writes: the hook's count
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, Server: apitest.New(t), plans: map[string]int{}, probes: map[string]int{}, hooked: map[string]int{}}
	b.opts = provider.Options{
		REST:   b.Config(),
		Plan:   planSimply,
		Probe:  func(context.Context, provider.Cluster, *clientcmdapi.Config) probe.Report { return passed },
		Config: provider.Config{Name: "test"},
		Hooks: provider.Hooks{
			Planned: func(c types.NamespacedName, _ time.Duration, _ error) { b.count(b.plans, c.String()) },
			Probed: func(c types.NamespacedName, _ time.Duration, _ probe.Report) {
				b.count(b.probes, c.String())
			},
			Wrote: func(_ types.NamespacedName, w provider.Write, err error) {
				if err == nil {
					b.count(b.hooked, string(w))
				}
				b.failed(err)
			},
			Error: b.failed,
		},
	}
	return b
}

func (b *bed) count(m map[string]int, key string) {
	b.mu.Lock()
	m[key]++
	b.mu.Unlock()
	b.Touch()
}

func (b *bed) failed(err error) {
	if err == nil {
		return
	}
	b.mu.Lock()
	b.errs = append(b.errs, err)
	b.mu.Unlock()
	b.Touch()
}

// counted reads one of the counts.
func (b *bed) counted(m map[string]int, key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return m[key]
}

func (b *bed) errorIs(target error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(errors.Join(b.errs...), target)
}

// running is a Provider whose Run was called.
type running struct {
	*provider.Provider
	stop func() error // ends Run, and returns what it returned
}

func (b *bed) run(t *testing.T) *running {
	t.Helper()
	p, err := provider.New(b.opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- p.Run(ctx)
		b.Touch()
	}()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil && !errors.Is(err, provider.ErrLostLease) {
			t.Errorf("got %v of Run, want nil", err)
		}
		if t.Failed() {
			t.Logf("errors: %v; writes: %v; plans: %v", errors.Join(b.errs...), b.AllWrites(), b.plans)
		}
	})
	return &running{p, stop}
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
	a := provider.Action{Condition: &metav1.Condition{
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
