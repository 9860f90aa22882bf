package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// ProxyReconciler keeps the objects from which Giant Swarm's cluster apps and
// machines take their proxies current for every Cluster, as [propagate.Plan] says.
//
// It reads Clusters from the manager's cache. Of Secrets and ConfigMaps it has
// caches of its own, which ask for no others than its own, the overrides and the
// installation's: a cache has one selector for a kind. Of all other Secrets it watches the
// metadata, and keeps the names, to find an override without its label. RBAC can't
// restrict a watch by label, so that its service account could read the others of these
// namespaces.
type ProxyReconciler struct {
	// Config is the installation's. Required.
	Config propagate.Config
	// Namespaces are those whose Clusters are looked after. If empty, all. The
	// manager's cache must have them.
	Namespaces []string
	// Facts, if not nil, adds what else the program knows of a Cluster, such as
	// the networks of its nodes and its cloud. Several goroutines call it at once,
	// for each change and each plan. If it reads anything besides the Cluster, changes
	// to that are not noticed. It must not write to the Cluster, which has the fields
	// that the manager's cache keeps: with [CacheOptions], few.
	Facts func(cluster *unstructured.Unstructured, facts *noproxy.Cluster)
}

// Check returns an error that names a field that can't be used. SetupWithManager calls
// it.
func (r *ProxyReconciler) Check() error {
	return r.Config.Check()
}

// SetupWithManager adds the controllers proxy and proxy-installation to the manager, each
// with opts. Where opts has no RateLimiter, they wait 100 ms after a first failure, and
// a minute at most. The error is [ErrNoCRD] if the API server serves no Clusters. r is
// read once.
func (r *ProxyReconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, opts controller.Options) error {
	if err := r.Check(); err != nil {
		return err
	}
	cluster, err := servedClusters(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	p := &proxyRun{
		ProxyReconciler: *r,
		installation:    secretName(r.Config.Installation),
		cluster:         cluster,
		clusters:        mgr.GetCache(),
		live:            mgr.GetAPIReader(),
		own:             ownCaches{}, overrides: ownCaches{}, unlabelled: ownCaches{}, installations: ownCaches{},
	}
	p.values, p.systemd = r.Config.Suffixes()
	p.events.recorder = mgr.GetEventRecorderFor(proxyProgram)
	if err := p.addWriter(mgr, proxyProgram+"-"+r.Config.Labels()[propagate.LabelManagedBy]); err != nil {
		return fmt.Errorf("controllers: metrics: %w", err)
	}
	if err := p.addCaches(ctx, mgr); err != nil {
		return fmt.Errorf("controllers: caches of Secrets: %w", err)
	}
	if err := p.addControllers(mgr, opts); err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	return nil
}

const proxyProgram = "proxy-propagator" // names what it writes

// addCaches adds a cache for each selection of Secrets, since a cache has one selector
// for a kind. They are filled whether this process is the leader or not.
func (p *proxyRun) addCaches(ctx context.Context, mgr manager.Manager) error {
	ours := labels.SelectorFromSet(p.Config.Labels())
	errs := []error{fillCache(ctx, mgr.GetCache(), p.cluster)}
	for _, ns := range scopesOf(p.Namespaces) {
		errs = append(errs,
			p.own.addFilled(ctx, mgr, ns, map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: ours, Transform: trimData}, &corev1.ConfigMap{}: {Label: ours, Transform: trimData}}),
			p.overrides.addFilled(ctx, mgr, ns, map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: parseSelector(propagate.LabelOverride), Transform: trimData}}),
			p.unlabelled.addFilled(ctx, mgr, ns, map[client.Object]cache.ByObject{secretMetadata(): {Label: parseSelector("!" + propagate.LabelOverride), Transform: trimMetadata}}))
	}
	named := fields.OneTermEqualSelector("metadata.name", p.installation.Name)
	errs = append(errs, p.installations.addFilled(ctx, mgr, p.installation.Namespace, map[client.Object]cache.ByObject{&corev1.Secret{}: {Field: named}}))
	return errors.Join(errs...)
}

// secretMetadata is what a cache knows a Secret's metadata by.
func secretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

// trimMetadata reduces metadata to what names an object.
func trimMetadata(object any) (any, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = m.Namespace, m.Name, m.UID, m.ResourceVersion
	return kept, nil
}

// addControllers adds one for Clusters, and one for the installation's Secret, of which
// is told once and not for each Cluster.
func (p *proxyRun) addControllers(mgr manager.Manager, opts controller.Options) error {
	changed := predicate.TypedFuncs[*unstructured.Unstructured]{UpdateFunc: p.isClusterChanged}
	clusters := []source.Source{source.Kind(mgr.GetCache(), p.cluster, &handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{}, changed)}
	for _, c := range p.own {
		clusters = append(clusters,
			source.Kind(c, &corev1.Secret{}, clustersOf[*corev1.Secret](p.systemd, p.values)),
			source.Kind(c, &corev1.ConfigMap{}, clustersOf[*corev1.ConfigMap](p.values)))
	}
	for _, c := range p.overrides {
		clusters = append(clusters, source.Kind(c, &corev1.Secret{}, clustersOf[*corev1.Secret](propagate.SuffixOverride)))
	}
	for _, c := range p.unlabelled {
		clusters = append(clusters, source.Kind(c, secretMetadata(), clustersOf[*metav1.PartialObjectMetadata](propagate.SuffixOverride)))
	}
	installation := func(requests handler.TypedMapFunc[*corev1.Secret, reconcile.Request]) source.Source {
		c := p.installations.of(p.installation.Namespace)
		return source.Kind(c, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(requests), predicate.TypedFuncs[*corev1.Secret]{
			UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Secret]) bool {
				return !reflect.DeepEqual(e.ObjectOld.Data, e.ObjectNew.Data)
			}})
	}
	only := []reconcile.Request{{NamespacedName: p.installation}}
	missing := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(only[0]) // there is no event if there is no Secret
		return nil
	})
	err := addController(mgr, "proxy", opts, p.reconcileCluster, append(clusters, installation(p.allClusters))...)
	if err == nil {
		err = addController(mgr, "proxy-installation", opts, p.checkInstallation, missing,
			installation(func(context.Context, *corev1.Secret) []reconcile.Request { return only }))
	}
	return err
}

// addController adds a controller whose workers the namespaces share. A late cache is no
// failure of the reconciler.
func addController(mgr manager.Manager, name string, opts controller.Options, reconciler reconcile.Func, sources ...source.Source) error {
	opts.DefaultFromConfig(mgr.GetControllerOptions())
	opts.Reconciler = reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := reconciler(ctx, request)
		if errors.Is(err, errCacheLate) {
			return reconcile.Result{RequeueAfter: cacheDelay}, nil // an event comes sooner
		}
		return result, err
	})
	if opts.RateLimiter == nil {
		opts.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, time.Minute)
	}
	turns := shareWorkers(&opts)
	c, err := controller.New(name, mgr, opts)
	if err != nil {
		return err
	}
	for _, s := range append([]source.Source{turns}, sources...) {
		if err := c.Watch(s); err != nil {
			return err
		}
	}
	return nil
}

func requestOf(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// isClusterChanged compares what a plan depends on.
func (p *proxyRun) isClusterChanged(e event.TypedUpdateEvent[*unstructured.Unstructured]) bool {
	before, errBefore := p.readCluster(e.ObjectOld)
	after, errAfter := p.readCluster(e.ObjectNew)
	return errBefore != nil || errAfter != nil || !reflect.DeepEqual(before, after)
}

// clustersOf requests the Cluster that an object of this name belongs to.
func clustersOf[T client.Object](suffixes ...string) handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, object T) (requests []reconcile.Request) {
		for _, suffix := range suffixes {
			if name, ok := strings.CutSuffix(object.GetName(), suffix); ok {
				requests = append(requests, requestOf(object.GetNamespace(), name))
			}
		}
		return requests
	})
}

func (p *proxyRun) allClusters(ctx context.Context, _ *corev1.Secret) (requests []reconcile.Request) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(p.cluster.GroupVersionKind())
	if err := p.clusters.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list Clusters")
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: nameOf(&list.Items[i])})
	}
	return requests
}
