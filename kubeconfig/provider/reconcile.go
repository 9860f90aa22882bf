package provider

import (
	"cmp"
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/controller"
)

// reconcile plans for one Cluster, and does what the plan says. The queue makes one
// call at a time for each key.
func (r *run) reconcile(ctx context.Context, key types.NamespacedName) error {
	u, _ := r.clusters.Get(key.Namespace, key.Name).(*unstructured.Unstructured)
	if u == nil {
		r.state.forgetCluster(key)
		return nil
	}
	cluster, ready := r.readCluster(ctx, u)
	if !ready {
		return nil // queued again when the cache of its infrastructure is filled
	}
	config := r.opts.Config
	settings, _ := Resolve(cluster, config) // Plan reports the error
	route := secretName(settings.RouteSecret)
	r.state.trackCluster(key, cluster.UID, route)
	cached := func(name types.NamespacedName) metav1.Object {
		if secret := r.secrets.Secret(name); secret != nil {
			return secret
		}
		return nil
	}
	config.Now = time.Now()
	if !r.state.caughtUp(key, config.Now, cached) {
		r.queue.AddAfter(key, time.Second) // the event comes sooner
		return nil
	}
	if c := r.state.conditionAfter(key, u.GetResourceVersion()); c != nil {
		cluster.Condition = c
	}
	config.Results = r.state.probeResults(key)
	action, err := r.opts.planFunc()(cluster, r.secretsOf(cluster, settings, route), config)
	if planned := r.opts.Hooks.Planned; planned != nil {
		planned(key, time.Since(config.Now), err)
	}
	if len(action.Probe) > 0 {
		r.startProbes(ctx, cluster, action.Probe)
		return err
	}
	if failed := r.applyAction(ctx, cluster, action); failed != nil {
		return failed
	}
	if action.After > 0 {
		r.queue.AddAfter(key, controller.Spread(action.After))
	}
	return err
}

// readCluster makes a Cluster from the caches. It returns false if they are not filled
// yet.
func (r *run) readCluster(ctx context.Context, u *unstructured.Unstructured) (Cluster, bool) {
	infrastructure, ready := r.infrastructure.objectFor(ctx, u)
	if !ready {
		return Cluster{}, false
	}
	cluster, err := ReadCluster(u.DeepCopy(), infrastructure)
	if err != nil {
		r.createEvent(ctx, cluster, Event{Type: corev1.EventTypeWarning, Reason: "InvalidEndpoint", Message: err.Error()}, "")
	}
	if ns := r.namespaces.Namespace(cluster.Namespace); ns != nil {
		cluster.NamespaceAnnotations = ns.DeepCopy().Annotations
	}
	return cluster, true
}

func (r *run) secretsOf(cluster Cluster, settings Settings, route types.NamespacedName) Secrets {
	named := func(name string) *corev1.Secret {
		return r.secrets.Secret(types.NamespacedName{Namespace: cluster.Namespace, Name: name}).DeepCopy()
	}
	s := Secrets{Kubeconfig: named(cluster.Name + kubeconfigSuffix), CA: named(cluster.Name + caSuffix)}
	if settings.SecondaryName != "" {
		s.Secondary = named(settings.SecondaryName)
	}
	if route.Name != "" {
		s.Route = r.routes.Secret(route).DeepCopy()
	}
	return s
}

// secretName reads namespace/name.
func secretName(text string) types.NamespacedName {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// startProbes starts the probes that don't run yet. Each queues its Cluster when it
// ends, so that no worker waits for a probe.
func (r *run) startProbes(ctx context.Context, cluster Cluster, candidates []Candidate) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	for _, candidate := range candidates {
		if r.state.startProbe(key, candidate.Key) {
			r.probes.Go(func() {
				r.runProbe(ctx, cluster, candidate)
				r.queue.Add(key)
			})
		}
	}
}

// runProbe waits for a free slot, and probes.
func (r *run) runProbe(ctx context.Context, cluster Cluster, candidate Candidate) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // if both cases are ready, select takes either
		r.state.finishProbe(key, cluster.UID, candidate.Key, nil, time.Time{})
		return
	}
	limit, cancel := context.WithTimeout(ctx, cmp.Or(r.opts.ProbeTimeout, defaultProbeTimeout))
	defer cancel()
	began := time.Now()
	report := r.opts.probeCandidate(limit, cluster, candidate)
	now := time.Now()
	if ctx.Err() != nil { // a canceled probe says nothing about the Cluster
		r.state.finishProbe(key, cluster.UID, candidate.Key, nil, now)
		return
	}
	// The hook comes first, so that its caller hears of the probe before its effects.
	if probed := r.opts.Hooks.Probed; probed != nil {
		probed(key, now.Sub(began), report)
	}
	r.state.finishProbe(key, cluster.UID, candidate.Key, &report, now)
}
