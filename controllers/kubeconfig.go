package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// kubeconfigController names the controller in metrics, logs and Events, and, with
// Config.Name, as a manager of fields.
const kubeconfigController = "kubeconfig-provider"

const (
	defaultProbeTimeout = 15 * time.Second
	maxProbes           = 32 // that are new, see probeSlotTime
	// probeSlotTime is how long a probe counts. One that takes longer waits for an
	// answer, which costs little, and clusters that are down must not delay others.
	probeSlotTime = 2 * time.Second
	// maxProbeWait is how long a probe waits for its turn. If it is still wanted then, it is
	// planned again.
	maxProbeWait = 5 * time.Minute
	// cacheDelay is when to look again, if nothing happens, at a cache that is late.
	cacheDelay = time.Second
)

// KubeconfigReconciler keeps the kubeconfig Secrets of Cluster API's Clusters as
// [provider.Plan] wants them: it watches Clusters and what belongs to them, probes
// beside the workers, writes by resourceVersion, and says in the condition
// [provider.ConditionRoute] and in Events what it does.
//
// It sees the Secrets that are labelled with cluster.x-k8s.io/cluster-name, and the
// Secrets with [provider.LabelRoute]. Its fields are read by SetupWithManager.
type KubeconfigReconciler struct {
	// Config is the installation's. Now and Results are not read.
	Config provider.Config
	// Namespaces are those whose Clusters are looked after. If empty, all. The
	// manager's cache must have them, see [CacheOptions].
	Namespaces []string
	// WatchFilter is the value that Clusters must have in their label
	// cluster.x-k8s.io/watch-filter. If empty, all are looked after.
	WatchFilter string
	// Probe tries a kubeconfig. If nil, candidate.Options().Run. Another one knows tunnels
	// that end in this process, say, and minds candidate.Extension. It returns when ctx
	// ends, and is called by several goroutines at once.
	Probe func(ctx context.Context, cluster provider.Cluster, candidate provider.Candidate) probe.Report

	probeTimeout time.Duration                                                                      // in tests
	kindInterval time.Duration                                                                      // in tests
	plan         func(provider.Cluster, provider.Secrets, provider.Config) (provider.Action, error) // in tests
}

// SetupWithManager adds the controller to the manager. ctx bounds the requests that ask
// which version of Clusters is served; without any, the error is [ErrNoCRD]. The
// manager's scheme must have Secrets and Namespaces. Nothing is written before the
// manager is started, and none of the controller's probes and writes goes on when it
// has ended. Where options has no RateLimiter, the controller waits 100 ms after a first
// failure, and a minute at most. Namespaces take turns at its workers and probes.
func (r *KubeconfigReconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, options controller.Options) error {
	if err := r.Config.Check(); err != nil {
		return err
	}
	kind, err := servedClusters(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	k := &kubeconfigRun{
		KubeconfigReconciler: *r,
		mgr:                  mgr,
		kind:                 kind,
		own:                  ownCaches{},
		state:                &clusterStates{clusterMap[clusterState]{clusters: map[types.NamespacedName]*clusterState{}}},
		events:               &eventLog{recorder: mgr.GetEventRecorderFor(kubeconfigController)},
		slots:                turns.New[string](maxProbes, 0),
	}
	// At the start the many Clusters that are there don't delay the one that is made.
	k.slots.NewestFirst = true
	if k.plan == nil {
		k.plan = provider.Plan
	}
	if k.Probe == nil {
		k.Probe = func(ctx context.Context, _ provider.Cluster, candidate provider.Candidate) probe.Report {
			return candidate.Options().Run(ctx, candidate.Config)
		}
	}
	if k.metrics, err = newProviderMetrics(); err != nil {
		return err
	}
	k.writer = newObjectWriter(mgr.GetClient(), k.Config.FieldOwner(), k.metrics.writes)
	if err := k.addCaches(ctx); err != nil {
		return err
	}
	k.infrastructure = &infrastructure{run: k, interval: cmp.Or(k.kindInterval, kindInterval), named: make(chan struct{}, 1), kinds: map[watchedKind]*infrastructureKind{}}
	if err := addController(mgr, kubeconfigController, options, k.Reconcile, k.listSources()...); err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(k.waitStopped))
}

// kubeconfigRun is a KubeconfigReconciler in a manager.
type kubeconfigRun struct {
	KubeconfigReconciler
	mgr     manager.Manager
	kind    *unstructured.Unstructured // an empty Cluster
	own     ownCaches                  // Namespaces, route Secrets, infrastructure
	state   *clusterStates
	writer  *objectWriter
	events  *eventLog
	metrics providerMetrics

	infrastructure *infrastructure
	slots          *turns.Queue[string] // of new probes, by namespace
	running        sync.WaitGroup       // probes, and the search for kinds
	runMu          sync.Mutex           // guards ended, and running's way from zero
	ended          bool                 // nothing is started any more

	// Set when the controller is started, before the first Reconcile.
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// start runs f in a goroutine, unless the manager ends.
func (k *kubeconfigRun) start(f func()) {
	k.runMu.Lock()
	defer k.runMu.Unlock()
	if !k.ended {
		k.running.Go(f)
	}
}

// waitStopped keeps the manager from ending before what was started has ended.
func (k *kubeconfigRun) waitStopped(ctx context.Context) error {
	<-ctx.Done()
	k.runMu.Lock()
	k.ended = true
	k.runMu.Unlock()
	k.running.Wait()
	return nil
}

// addCaches adds the caches beside the manager's. The Secret of the installation's
// route may be in a namespace of its own.
func (k *kubeconfigRun) addCaches(ctx context.Context) error {
	scopes := scopesOf(k.Namespaces)
	if ns, _, ok := strings.Cut(k.Config.Defaults.RouteSecret, "/"); ok && len(k.Namespaces) > 0 && !slices.Contains(scopes, ns) {
		scopes = append(scopes, ns)
	}
	routes := cache.ByObject{Label: parseSelector(provider.LabelRoute), Transform: trimData}
	for _, ns := range scopes {
		spaces := cache.ByObject{Transform: trimNamespace}
		if ns != metav1.NamespaceAll {
			spaces.Field = fields.OneTermEqualSelector(metav1.ObjectNameField, ns)
		}
		err := k.own.addCache(k.mgr, ns, cache.Options{
			DefaultTransform: trimInfrastructure,
			// A read of a kind that is not watched any more does not watch it again.
			ReaderFailOnMissingInformer: true,
			ByObject:                    map[client.Object]cache.ByObject{&corev1.Secret{}: routes, &corev1.Namespace{}: spaces},
		})
		if err == nil {
			err = fillCache(ctx, k.own[ns], &corev1.Secret{})
		}
		if err == nil && isWatched(k.Namespaces, ns) {
			err = fillCache(ctx, k.own[ns], &corev1.Namespace{})
		}
		if err != nil {
			return fmt.Errorf("controllers: caches of Namespaces and route Secrets: %w", err)
		}
	}
	if err := fillCache(ctx, k.mgr.GetCache(), k.kind, &corev1.Secret{}); err != nil {
		return fmt.Errorf("controllers: the manager's cache: %w", err)
	}
	return nil
}

// listSources are what leads to plans, beside the infrastructure.
func (k *kubeconfigRun) listSources() []source.Source {
	all := []source.Source{
		source.Func(k.noteStart),
		source.Kind(k.mgr.GetCache(), k.kind.DeepCopy(), &handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{}, changedCluster()),
		source.Kind(k.mgr.GetCache(), &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(clustersOfSecret)),
	}
	for ns, own := range k.own {
		all = append(all, source.Kind(own, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, s *corev1.Secret) []reconcile.Request {
			return k.state.findClusters(func(_ types.NamespacedName, c *clusterState) bool { return c.route == nameOf(s) })
		})))
		if isWatched(k.Namespaces, ns) {
			all = append(all, source.Kind(own, &corev1.Namespace{}, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, n *corev1.Namespace) []reconcile.Request {
				return k.state.findClusters(func(key types.NamespacedName, _ *clusterState) bool { return key.Namespace == n.Name })
			}), changedNamespace()))
		}
	}
	return all
}

// noteStart keeps what the controller is started with, and starts what it needs.
func (k *kubeconfigRun) noteStart(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	k.ctx, k.queue = ctx, queue
	k.start(k.infrastructure.followKinds)
	return nil
}

// clustersOfSecret returns the Cluster of a labelled Secret.
func clustersOfSecret(_ context.Context, s *corev1.Secret) []reconcile.Request {
	name := s.Labels[kubeconfig.ClusterNameLabel]
	if name == "" {
		return nil
	}
	return []reconcile.Request{requestOf(s.Namespace, name)}
}

// changedCluster leaves out changes of what is not read. Other fields of a Cluster's
// status change all the time.
func changedCluster() predicate.TypedPredicate[*unstructured.Unstructured] {
	return predicate.TypedFuncs[*unstructured.Unstructured]{UpdateFunc: func(e event.TypedUpdateEvent[*unstructured.Unstructured]) bool {
		before, _ := trimClusters(e.ObjectOld)
		after, _ := trimClusters(e.ObjectNew)
		a, b := before.(*unstructured.Unstructured), after.(*unstructured.Unstructured)
		a.SetResourceVersion("")
		b.SetResourceVersion("")
		return !reflect.DeepEqual(a, b)
	}}
}

func changedNamespace() predicate.TypedPredicate[*corev1.Namespace] {
	return predicate.TypedFuncs[*corev1.Namespace]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Namespace]) bool {
		return !maps.Equal(ownAnnotations(e.ObjectOld.Annotations), ownAnnotations(e.ObjectNew.Annotations))
	}}
}

// trimNamespace keeps the annotations that are read.
func trimNamespace(object any) (any, error) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: ns.Name, UID: ns.UID, ResourceVersion: ns.ResourceVersion, Annotations: ownAnnotations(ns.Annotations),
	}}, nil
}

// trimInfrastructure reduces unstructured objects to what provider.ReadCluster reads.
func trimInfrastructure(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := trimObject(u)
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "apiEndpoints")
	if list, ok := value.([]any); ok {
		_ = unstructured.SetNestedSlice(kept.Object, trimEndpoints(list), "status", "apiEndpoints") // no error: nothing is in its place
	}
	return kept, nil
}

// keptEndpoints is one more than provider.ReadCluster reads, so that people are told of the others.
const keptEndpoints = 65

func trimEndpoints(list []any) (kept []any) {
	for _, e := range list[:min(len(list), keptEndpoints)] {
		if m, ok := e.(map[string]any); ok {
			e = map[string]any{"host": m["host"], "port": m["port"]}
		}
		if sizeOf(e) > 1<<10 {
			e = "an endpoint of more than 1 KiB"
		}
		kept = append(kept, e)
	}
	return kept
}
