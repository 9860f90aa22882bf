package controllers

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

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
