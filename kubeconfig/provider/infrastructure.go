package provider

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/controller"
)

const (
	byInfrastructure = "infrastructure" // an index of Clusters
	byKind           = "infrastructure kind"

	// infrastructureWait is how long Clusters wait for their infrastructure's
	// cache before they are reconciled without it.
	infrastructureWait = 10 * time.Second
)

// infrastructure watches the kinds of infrastructure objects that Clusters name. The
// first Cluster that names a kind starts its watch.
type infrastructure struct {
	run *run
	wg  sync.WaitGroup

	mu    sync.Mutex // guards the field below
	kinds map[schema.GroupKind]*infrastructureKind
}

type infrastructureKind struct {
	synced  chan struct{}     // closed when objects can be read
	settled chan struct{}     // closed when synced is, or after infrastructureWait
	objects controller.Caches // readable when synced is closed
}

func newInfrastructure(r *run) *infrastructure {
	return &infrastructure{run: r, kinds: map[schema.GroupKind]*infrastructureKind{}}
}

func (i *infrastructure) wait() { i.wg.Wait() }

// reference is a Cluster's spec.infrastructureRef.
type reference struct {
	schema.GroupKind
	namespace, name string
}

func (r reference) String() string {
	return fmt.Sprintf("%s %s/%s", r.GroupKind, r.namespace, r.name)
}

// readReference accepts apiGroup (v1beta2) and apiVersion (v1beta1).
func readReference(u *unstructured.Unstructured) (reference, bool) {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "infrastructureRef")
	m, _ := value.(map[string]any)
	text := func(name string) string {
		s, _ := m[name].(string)
		return s
	}
	r := reference{namespace: u.GetNamespace(), name: text("name")}
	r.Group, r.Kind = text("apiGroup"), text("kind")
	if gv, err := schema.ParseGroupVersion(text("apiVersion")); err == nil && r.Group == "" {
		r.Group = gv.Group
	}
	return r, r.Group != "" && r.Kind != "" && r.name != ""
}

func indexInfrastructure(object any) ([]string, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		if ref, ok := readReference(u); ok {
			return []string{ref.String()}, nil
		}
	}
	return nil, nil
}

func indexKind(object any) ([]string, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		if ref, ok := readReference(u); ok {
			return []string{ref.GroupKind.String()}, nil
		}
	}
	return nil, nil
}

// objectFor returns the Cluster's infrastructure object; nil without one. It returns
// false while the cache is being filled. The Cluster is queued after that.
func (i *infrastructure) objectFor(ctx context.Context, cluster *unstructured.Unstructured) (*unstructured.Unstructured, bool) {
	ref, ok := readReference(cluster)
	if !ok {
		return nil, true
	}
	k := i.ensureKind(ctx, ref.GroupKind)
	select {
	case <-k.settled:
	default:
		return nil, false
	}
	select {
	case <-k.synced:
	default:
		return nil, true
	}
	u, _ := k.objects.Get(ref.namespace, ref.name).(*unstructured.Unstructured)
	return u.DeepCopy(), true
}

func (i *infrastructure) ensureKind(ctx context.Context, gk schema.GroupKind) *infrastructureKind {
	i.mu.Lock()
	defer i.mu.Unlock()
	k := i.kinds[gk]
	if k == nil {
		k = &infrastructureKind{synced: make(chan struct{}), settled: make(chan struct{}), objects: controller.Caches{}}
		i.kinds[gk] = k
		i.wg.Go(func() { i.watchKind(ctx, gk, k) })
		i.wg.Go(func() { i.settleKind(ctx, gk, k) })
	}
	return k
}

// settleKind queues the kind's Clusters once the cache is filled, or after
// infrastructureWait.
func (i *infrastructure) settleKind(ctx context.Context, gk schema.GroupKind, k *infrastructureKind) {
	timer := time.NewTimer(infrastructureWait)
	defer timer.Stop()
	select {
	case <-k.synced:
	case <-timer.C:
		i.run.reportError(fmt.Errorf("provider: %s can't be watched: its Clusters have one endpoint for the time being", gk))
	case <-ctx.Done():
	}
	close(k.settled)
	i.queueByIndex(byKind, gk.String())
}

func (i *infrastructure) queueByIndex(index, value string) {
	for _, informer := range i.run.clusters {
		objects, _ := informer.GetIndexer().ByIndex(index, value)
		for _, object := range objects {
			if u, ok := object.(*unstructured.Unstructured); ok {
				i.run.queue.Add(controller.NameOf(u))
			}
		}
	}
}

// watchKind finds the kind's resource, and fills the caches.
func (i *infrastructure) watchKind(ctx context.Context, gk schema.GroupKind, k *infrastructureKind) {
	wait := backoff.Backoff{First: time.Second}
	gvr, err := i.findResource(ctx, gk)
	for err != nil {
		if ctx.Err() != nil {
			return
		}
		i.run.reportError(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Next(0)):
		}
		gvr, err = i.findResource(ctx, gk)
	}
	changed := func(old, new any) { i.objectChanged(gk, old, new) }
	var synced []cache.InformerSynced
	for ns := range i.run.clusters {
		informer := dynamicinformer.NewFilteredDynamicInformer(i.run.base.Dynamic, gvr, ns, 0, cache.Indexers{}, nil).Informer()
		k.objects[ns] = informer
		synced = append(synced, informer.HasSynced)
		if err := i.run.base.Start(ctx, &i.wg, informer, gvr.GroupResource().String(), transformInfrastructure, changed); err != nil {
			i.run.reportError(err)
			return
		}
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		close(k.synced)
		i.queueByIndex(byKind, gk.String())
	}
}

// findResource returns the kind's resource in the version that the API server prefers.
func (i *infrastructure) findResource(ctx context.Context, gk schema.GroupKind) (schema.GroupVersionResource, error) {
	var group metav1.APIGroup
	err := i.run.base.Kube.Discovery().RESTClient().Get().AbsPath("/apis/" + gk.Group).Do(ctx).Into(&group)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("provider: what the API server serves of %s: %w", gk.Group, err)
	}
	gv := schema.GroupVersion{Group: gk.Group, Version: group.PreferredVersion.Version}
	list, err := i.run.base.Resources(ctx, gv)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	at := slices.IndexFunc(list, func(r metav1.APIResource) bool { return r.Kind == gk.Kind && r.Namespaced })
	if at < 0 {
		return schema.GroupVersionResource{}, fmt.Errorf("provider: the API server serves no %s", gk)
	}
	return gv.WithResource(list[at].Name), nil
}

func (i *infrastructure) objectChanged(gk schema.GroupKind, old, new any) {
	u, ok := controller.Either[*unstructured.Unstructured](old, new)
	if !ok {
		return
	}
	before, _ := old.(*unstructured.Unstructured)
	after, _ := new.(*unstructured.Unstructured)
	if before != nil && after != nil && reflect.DeepEqual(before.Object["status"], after.Object["status"]) {
		return
	}
	i.queueByIndex(byInfrastructure, reference{gk, u.GetNamespace(), u.GetName()}.String())
}
