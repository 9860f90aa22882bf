package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// infrastructureWait is how long Clusters wait for their infrastructure's cache
	// before they are planned without it.
	infrastructureWait = 10 * time.Second
	// kindInterval is the time between two attempts to find a kind that is not served.
	kindInterval = 10 * time.Second
)

// infrastructure watches the kinds of infrastructure objects that Clusters name. The
// first Cluster that names a kind starts its watch.
type infrastructure struct {
	run *kubeconfigRun

	mu    sync.Mutex // guards the field below
	kinds map[schema.GroupKind]*infrastructureKind
}

type infrastructureKind struct {
	since   time.Time
	watched chan struct{}              // closed when object is set, and its kind watched
	object  *unstructured.Unstructured // empty
}

func newInfrastructure(k *kubeconfigRun) *infrastructure {
	return &infrastructure{run: k, kinds: map[schema.GroupKind]*infrastructureKind{}}
}

// reference is a Cluster's spec.infrastructureRef.
type reference struct {
	schema.GroupKind
	types.NamespacedName
}

// readReference accepts apiGroup (v1beta2) and apiVersion (v1beta1). It returns the zero
// reference for none.
func readReference(u *unstructured.Unstructured) reference {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "infrastructureRef")
	m, _ := value.(map[string]any)
	text := func(name string) string {
		s, _ := m[name].(string)
		return s
	}
	r := reference{NamespacedName: types.NamespacedName{Namespace: u.GetNamespace(), Name: text("name")}}
	r.Group, r.Kind = text("apiGroup"), text("kind")
	if gv, err := schema.ParseGroupVersion(text("apiVersion")); err == nil && r.Group == "" {
		r.Group = gv.Group
	}
	if r.Group == "" || r.Kind == "" || r.Name == "" {
		return reference{}
	}
	return r
}

// objectFor returns the object. It returns nil if the object doesn't exist, or if its kind
// can't be watched, and false while the cache is being filled.
func (i *infrastructure) objectFor(ctx context.Context, ref reference) (*unstructured.Unstructured, bool, error) {
	if ref == (reference{}) {
		return nil, true, nil
	}
	kind := i.ensureKind(ref.GroupKind)
	late := time.Since(kind.since) > infrastructureWait
	select {
	case <-kind.watched:
	default:
		return nil, late, nil
	}
	own := i.run.own.of(ref.Namespace)
	informer, err := own.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
	if err != nil || !informer.HasSynced() {
		return nil, late, err
	}
	u := kind.object.DeepCopy()
	err = own.Get(ctx, ref.NamespacedName, u)
	if apierrors.IsNotFound(err) {
		return nil, true, nil
	}
	return u, true, err
}

func (i *infrastructure) ensureKind(gk schema.GroupKind) *infrastructureKind {
	i.mu.Lock()
	defer i.mu.Unlock()
	kind := i.kinds[gk]
	if kind == nil {
		kind = &infrastructureKind{since: time.Now(), watched: make(chan struct{})}
		i.kinds[gk] = kind
		i.run.start(func() { i.watchKind(gk, kind) })
	}
	return kind
}

// watchKind finds the version of the kind that is served, and has the controller watch
// it. It tries until the controller ends.
func (i *infrastructure) watchKind(gk schema.GroupKind, kind *infrastructureKind) {
	ctx := i.run.ctx
	told := false
	err := wait.PollUntilContextCancel(ctx, kindInterval, true, func(context.Context) (bool, error) {
		mapping, err := i.run.mgr.GetRESTMapper().RESTMapping(gk)
		if err != nil {
			if !told {
				log.FromContext(ctx).Error(err, "The infrastructure can't be watched: its Clusters have one endpoint for the time being", "kind", gk.String())
				told = true
			}
			return false, nil
		}
		kind.object = &unstructured.Unstructured{}
		kind.object.SetGroupVersionKind(mapping.GroupVersionKind)
		return true, nil
	})
	if err != nil {
		return
	}
	clusters := queueAll(func(u *unstructured.Unstructured) []reconcile.Request {
		return i.run.state.findClusters(func(_ types.NamespacedName, c *clusterState) bool {
			return c.infrastructure == reference{gk, nameOf(u)}
		})
	})
	var errs []error
	for ns, own := range i.run.own {
		if isWatched(i.run.Namespaces, ns) {
			errs = append(errs, i.run.controller.Watch(source.Kind(own, kind.object.DeepCopy(), clusters)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, fmt.Sprintf("Watch %s", gk))
		return
	}
	close(kind.watched)
}
