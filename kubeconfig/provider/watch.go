package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/causewayproject/causeway/kubeconfig"
)

// run is a run of a Provider.
type run struct {
	*Provider
	clusterGVR schema.GroupVersionResource
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName]

	clusters, secrets, routes, namespaces *kind
	infrastructure                        *infrastructure

	ledger    *ledger
	slots     chan struct{} // one for each probe that runs
	probes    sync.WaitGroup
	informers sync.WaitGroup
}

func (p *Provider) newRun(gvr schema.GroupVersionResource) *run {
	r := &run{
		Provider:   p,
		clusterGVR: gvr,
		queue:      newQueue(),
		clusters:   &kind{},
		secrets:    &kind{},
		routes:     &kind{},
		namespaces: &kind{},
		ledger:     newLedger(),
		slots:      make(chan struct{}, or(p.opts.Probes, defaultProbes)),
	}
	r.infrastructure = newInfrastructure(r)
	return r
}

// wait waits for what the run has started; its context has ended.
func (r *run) wait() {
	r.queue.ShutDown()
	r.probes.Wait()
	r.infrastructure.wait()
	r.informers.Wait()
}

// kind is the caches of one kind of objects: one cache for each Namespace that
// is watched, or a single one, "", for all.
type kind struct {
	byNamespace map[string]cache.SharedIndexInformer
}

func (k *kind) add(namespace string, informer cache.SharedIndexInformer) {
	if k.byNamespace == nil {
		k.byNamespace = map[string]cache.SharedIndexInformer{}
	}
	k.byNamespace[namespace] = informer
}

// get returns nil if there is no such object.
func (k *kind) get(namespace, name string) any {
	informer := k.byNamespace[namespace]
	if informer == nil {
		informer = k.byNamespace[""]
	}
	if informer == nil {
		return nil
	}
	object, _, _ := informer.GetStore().GetByKey(cache.ObjectName{Namespace: namespace, Name: name}.String())
	return object
}

func (k *kind) secret(key types.NamespacedName) *corev1.Secret {
	secret, _ := k.get(key.Namespace, key.Name).(*corev1.Secret)
	return secret
}

// watch starts the informers.
func (r *run) watch(ctx context.Context) error {
	scopes := r.opts.Namespaces
	if len(scopes) == 0 {
		scopes = []string{metav1.NamespaceAll}
	}
	for _, ns := range slices.Compact(slices.Sorted(slices.Values(scopes))) {
		r.clusters.add(ns, dynamicinformer.NewFilteredDynamicInformer(r.dynamic, r.clusterGVR, ns, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, byInfrastructure: indexInfrastructure, byKind: indexKind}, nil).Informer())
		r.secrets.add(ns, coreinformers.NewFilteredSecretInformer(r.kube, ns, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.LabelSelector = kubeconfig.ClusterNameLabel
		}))
		r.routes.add(ns, r.routeInformer(ns))
		r.namespaces.add(ns, coreinformers.NewFilteredNamespaceInformer(r.kube, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			if ns != "" {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", ns).String()
			}
		}))
	}
	// The Secret of the installation's route may be elsewhere.
	if ns, _, ok := strings.Cut(r.opts.Config.Defaults.RouteSecret, "/"); ok && !slices.Contains(scopes, ns) && scopes[0] != "" {
		r.routes.add(ns, r.routeInformer(ns))
	}
	for _, w := range []struct {
		kind    *kind
		what    string
		trim    cache.TransformFunc
		changed func(old, new any)
	}{
		{r.clusters, "Clusters", trimCluster, r.clusterChanged},
		{r.secrets, "Secrets", trimSecret, r.secretChanged},
		{r.routes, "route Secrets", trimRouteSecret, r.routeChanged},
		{r.namespaces, "Namespaces", trimNamespace, r.namespaceChanged},
	} {
		for _, informer := range w.kind.byNamespace {
			if err := r.start(ctx, &r.informers, informer, w.what, w.trim, w.changed); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) routeInformer(namespace string) cache.SharedIndexInformer {
	return coreinformers.NewFilteredSecretInformer(r.kube, namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = LabelRoute
	})
}

// start runs an informer until ctx ends. changed gets a nil old for an object
// that was added, and a nil new for one that was deleted.
func (r *run) start(ctx context.Context, wg *sync.WaitGroup, informer cache.SharedIndexInformer, what string, trim cache.TransformFunc, changed func(old, new any)) error {
	err := informer.SetTransform(trim)
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if ctx.Err() == nil {
				r.failed(fmt.Errorf("provider: watch %s: %w", what, err))
			}
		})
	}
	if err == nil {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { changed(nil, object) },
			UpdateFunc: changed,
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				changed(object, nil)
			},
		})
	}
	if err != nil {
		return fmt.Errorf("provider: watch %s: %w", what, err)
	}
	wg.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

// sync waits until the caches are filled, false if ctx ended first.
func (r *run) sync(ctx context.Context) bool {
	var synced []cache.InformerSynced
	for _, k := range []*kind{r.clusters, r.secrets, r.routes, r.namespaces} {
		for _, informer := range k.byNamespace {
			synced = append(synced, informer.HasSynced)
		}
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}
