package controllers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

var _ reconcile.Reconciler = (*kubeconfigRun)(nil)

// Reconcile plans for one Cluster, and does what the plan says.
func (k *kubeconfigRun) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	u := k.kind.DeepCopy()
	err := k.mgr.GetCache().Get(ctx, key, u)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil || !isWatched(k.Namespaces, key.Namespace) || k.WatchFilter != "" && k.WatchFilter != u.GetLabels()[watchFilterLabel] {
		k.noteRoute(key, types.NamespacedName{})
		k.state.forget(key)
		return reconcile.Result{}, nil
	}
	cluster, ready, err := k.readCluster(ctx, key, u)
	if err != nil {
		return reconcile.Result{}, err
	}
	config := k.Config
	config.Now = time.Now()
	if !ready {
		return reconcile.Result{RequeueAfter: cacheDelay}, nil // an event comes sooner
	}
	k.state.change(key, func(s *clusterState) {
		config.Results = maps.Clone(s.results)
		if written := s.condition.conditionAfter(u.GetResourceVersion()); written != nil {
			cluster.Condition = written
		}
	})
	secrets, err := k.readSecrets(ctx, key, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	action, err := k.plan(cluster, secrets, config)
	if err == nil && k.findUnlabelled(ctx, key, &secrets, action.Condition) {
		action, err = k.plan(cluster, secrets, config)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).V(1).Info("Planned", "probes", len(action.Probe), "write", writeName(action))
	if len(action.Probe) > 0 {
		k.startProbes(cluster, action.Probe)
		return reconcile.Result{}, nil // the probes queue it
	}
	return reconcile.Result{RequeueAfter: k.applyAction(ctx, u, cluster, action, config)}, nil
}

// readCluster makes a Cluster from the caches, and tracks it. It returns false if a
// cache does not have what the plan depends on yet.
func (k *kubeconfigRun) readCluster(ctx context.Context, key types.NamespacedName, u *unstructured.Unstructured) (provider.Cluster, bool, error) {
	ref, err := readReference(u)
	if err != nil {
		k.events.tell(u, corev1.EventTypeWarning, "InvalidInfrastructure", err.Error(), "")
	}
	k.state.track(key, string(u.GetUID()), ref)
	var ns corev1.Namespace
	err = k.own.of(key.Namespace).Get(ctx, client.ObjectKey{Name: key.Namespace}, &ns)
	if err != nil {
		return provider.Cluster{}, false, client.IgnoreNotFound(err)
	}
	object, ready, err := k.infrastructure.objectFor(ctx, ref)
	if err != nil || !ready {
		return provider.Cluster{}, false, err
	}
	cluster, err := provider.ReadCluster(u, object)
	if err != nil {
		k.events.tell(u, corev1.EventTypeWarning, "InvalidEndpoint", err.Error(), "")
	}
	cluster.NamespaceAnnotations = ns.Annotations
	return cluster, true, nil
}

// readSecrets reads them from the caches, and tracks the route Secret.
func (k *kubeconfigRun) readSecrets(ctx context.Context, key types.NamespacedName, cluster provider.Cluster) (provider.Secrets, error) {
	settings, _ := provider.Resolve(cluster, k.Config) // Plan reports the error
	route := secretName(settings.RouteSecret)
	k.noteRoute(key, route)
	var s provider.Secrets
	var errs [7]error
	labelled := func(name string) (*corev1.Secret, error) {
		s, err := getWritten(ctx, &k.writer.writes, k.mgr.GetAPIReader(), wholeCache{k.mgr.GetCache(), k.mgr.GetAPIReader()}, types.NamespacedName{Namespace: key.Namespace, Name: name}, &corev1.Secret{})
		if s != nil && s.Labels[kubeconfig.ClusterNameLabel] == "" { // from the API server: the cache would not have it
			s = nil
		}
		return s, err
	}
	s.Kubeconfig, errs[0] = labelled(key.Name + "-kubeconfig")
	s.CA, errs[1] = labelled(key.Name + "-ca")
	if settings.SecondaryName != "" {
		s.Secondary, errs[2] = labelled(settings.SecondaryName)
		s.SecondaryRecords, errs[5] = labelled(provider.RecordsName(settings.SecondaryName))
	}
	s.Records, errs[6] = labelled(provider.RecordsName(key.Name + "-kubeconfig"))
	if own := k.own.of(route.Namespace); route.Name != "" && own != nil {
		s.Route, errs[3] = getObject(ctx, own, route, &corev1.Secret{})
	}
	if s.Route != nil && route.Namespace == key.Namespace && len(s.Route.Data[provider.KeyProxyURL])+len(s.Route.Data[provider.KeyGateway]) == 0 {
		// Before the answer, too: one that names the Secret meanwhile has this one asked again.
		k.state.change(key, func(c *clusterState) { c.sole = true })
		s.SoleUser, errs[4] = k.isSoleUser(ctx, cluster, settings.RouteSecret)
		k.state.change(key, func(c *clusterState) { c.sole = s.SoleUser })
	}
	return s, errors.Join(errs[:]...)
}

// findUnlabelled notes which of the Secrets that a condition is about are there and in no cache, since
// they lack a label. It reports whether there are any.
func (k *kubeconfigRun) findUnlabelled(ctx context.Context, key types.NamespacedName, secrets *provider.Secrets, c *metav1.Condition) bool {
	if c == nil || !slices.Contains([]string{provider.ReasonNoCA, provider.ReasonNoSecret, provider.ReasonInvalidSettings}, c.Reason) {
		return false
	}
	labels := map[types.NamespacedName]string{
		{Namespace: key.Namespace, Name: key.Name + "-kubeconfig"}: kubeconfig.ClusterNameLabel,
		{Namespace: key.Namespace, Name: key.Name + "-ca"}:         kubeconfig.ClusterNameLabel,
	}
	k.state.change(key, func(c *clusterState) { labels[c.route] = provider.LabelRoute })
	for name, label := range labels {
		if name.Name == "" || !strings.Contains(c.Message, name.Name) {
			continue
		}
		live, err := getObject(ctx, k.mgr.GetAPIReader(), name, secretMetadata())
		if err != nil || live == nil {
			continue // the right to read it may be missing
		}
		if _, labelled := live.Labels[label]; !labelled {
			secrets.Unlabelled = append(secrets.Unlabelled, name.String())
		}
	}
	return len(secrets.Unlabelled) > 0
}

// isSoleUser reports whether no other Cluster of the namespace uses the Secret. It asks the
// cache and not k.state, which knows few Clusters after a start.
func (k *kubeconfigRun) isSoleUser(ctx context.Context, cluster provider.Cluster, secret string) (bool, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(k.kind.GroupVersionKind())
	if err := k.mgr.GetCache().List(ctx, &list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range list.Items {
		// Many with a Secret each would cost much to read.
		if !strings.HasSuffix(secret, strings.TrimSpace(list.Items[i].GetAnnotations()[provider.AnnotationRouteSecret])) {
			continue
		}
		other, _ := provider.ReadCluster(&list.Items[i], nil) // an endpoint that can't be read says nothing about the Secret
		other.NamespaceAnnotations = cluster.NamespaceAnnotations
		other.Annotations = maps.Clone(other.Annotations)
		delete(other.Annotations, provider.AnnotationNoProxy) // it takes long to parse
		if s, _ := provider.Resolve(other, k.Config); other.Name != cluster.Name && s.RouteSecret == secret {
			return false, nil
		}
	}
	return true, nil
}

// noteRoute tracks the route Secret. Whether others may use theirs depends on who else does.
func (k *kubeconfigRun) noteRoute(key, route types.NamespacedName) {
	for _, request := range k.state.moveRoute(key, route) {
		k.queue.Add(request)
	}
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
func (k *kubeconfigRun) startProbes(cluster provider.Cluster, candidates []provider.Candidate) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	for _, candidate := range candidates {
		if k.state.startProbe(key, candidate.Key) {
			k.start(func() {
				k.runProbe(cluster, key, candidate)
				k.queue.Add(reconcile.Request{NamespacedName: key})
			})
		}
	}
}

// runProbe waits for a free slot, and probes. The slot is free again when the probe has
// ended, or after probeSlotTime.
func (k *kubeconfigRun) runProbe(cluster provider.Cluster, key types.NamespacedName, candidate provider.Candidate) {
	wait, cancel := context.WithTimeout(k.ctx, maxProbeWait)
	defer cancel()
	if k.slots.Enter(wait, key.Namespace) != nil {
		k.state.finishProbe(key, cluster.UID, candidate.Key, nil, time.Time{})
		return
	}
	timer := time.AfterFunc(probeSlotTime, k.slots.Leave)
	defer func() {
		if timer.Stop() {
			k.slots.Leave()
		}
	}()
	limit, cancel := context.WithTimeout(k.ctx, cmp.Or(k.probeTimeout, defaultProbeTimeout))
	defer cancel()
	began := time.Now()
	var report probe.Report
	if k.ctx.Err() == nil { // the turn may have come with the end
		report = k.Probe(limit, cluster, candidate)
	}
	now := time.Now()
	if k.ctx.Err() != nil { // a canceled probe says nothing about the Cluster
		k.state.finishProbe(key, cluster.UID, candidate.Key, nil, now)
		return
	}
	k.metrics.countProbe(now.Sub(began), report)
	logger := k.mgr.GetLogger().WithName(kubeconfigController).WithValues("namespace", key.Namespace, "name", key.Name)
	logger.V(1).Info("Probed", "route", report.Route, "took", now.Sub(began).String(), "error", errorText(report.Err()))
	k.state.finishProbe(key, cluster.UID, candidate.Key, &report, now)
}

// errorText is for logs that write an error of a deeper level as one.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// spreadTime makes d longer by up to a quarter, so that what was seen in the same
// second doesn't stay together.
func spreadTime(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}
