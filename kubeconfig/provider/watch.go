package provider

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/causewayproject/causeway/internal/controller"
	"github.com/causewayproject/causeway/kubeconfig"
)

// run is one run of a Provider.
type run struct {
	*Provider
	clusterGVR schema.GroupVersionResource
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName]

	clusters, secrets, routes, namespaces controller.Caches
	infrastructure                        *infrastructure

	state     *localState
	slots     chan struct{} // one for each probe that runs
	probes    sync.WaitGroup
	informers sync.WaitGroup
}

func (p *Provider) newRun(gvr schema.GroupVersionResource) *run {
	r := &run{
		Provider:   p,
		clusterGVR: gvr,
		queue:      controller.NewQueue[types.NamespacedName](),
		clusters:   controller.Caches{},
		secrets:    controller.Caches{},
		routes:     controller.Caches{},
		namespaces: controller.Caches{},
		state:      newLocalState(),
		slots:      make(chan struct{}, cmp.Or(p.opts.Probes, defaultProbes)),
	}
	r.infrastructure = newInfrastructure(r)
	return r
}

// wait waits for everything that the run has started. Its context must have ended.
func (r *run) wait() {
	r.queue.ShutDown()
	r.probes.Wait()
	r.infrastructure.wait()
	r.informers.Wait()
}

// startInformers starts the informers.
func (r *run) startInformers(ctx context.Context) error {
	scopes := controller.Scopes(r.opts.Namespaces)
	for _, ns := range scopes {
		r.clusters[ns] = dynamicinformer.NewFilteredDynamicInformer(r.base.Dynamic, r.clusterGVR, ns, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, byInfrastructure: indexInfrastructure, byKind: indexKind}, nil).Informer()
		r.secrets[ns] = coreinformers.NewFilteredSecretInformer(r.base.Kube, ns, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.LabelSelector = kubeconfig.ClusterNameLabel
		})
		r.routes[ns] = r.routeInformer(ns)
		r.namespaces[ns] = coreinformers.NewFilteredNamespaceInformer(r.base.Kube, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			if ns != "" {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", ns).String()
			}
		})
	}
	// The Secret of the installation's route may be elsewhere.
	if ns, _, ok := strings.Cut(r.opts.Config.Defaults.RouteSecret, "/"); ok && !slices.Contains(scopes, ns) && scopes[0] != "" {
		r.routes[ns] = r.routeInformer(ns)
	}
	for _, w := range []struct {
		caches    controller.Caches
		what      string
		transform cache.TransformFunc
		changed   func(old, new any)
	}{
		{r.clusters, "Clusters", transformCluster, r.clusterChanged},
		{r.secrets, "Secrets", transformSecret, r.secretChanged},
		{r.routes, "route Secrets", transformRouteSecret, r.routeChanged},
		{r.namespaces, "Namespaces", transformNamespace, r.namespaceChanged},
	} {
		for _, informer := range w.caches {
			if err := r.base.Start(ctx, &r.informers, informer, w.what, w.transform, w.changed); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) routeInformer(namespace string) cache.SharedIndexInformer {
	return coreinformers.NewFilteredSecretInformer(r.base.Kube, namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = LabelRoute
	})
}
