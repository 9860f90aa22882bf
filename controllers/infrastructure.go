package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// kindInterval is how long Clusters wait for their infrastructure's cache before they
	// are planned without it, the least time between two questions what kinds are served,
	// and how long a kind may be watched that no Cluster names any more.
	kindInterval = 10 * time.Second
	// maxKindRetry is the longest time between two attempts to watch a kind.
	maxKindRetry = 5 * time.Minute
	// kindTimeout bounds the request that asks whether a kind may be read.
	kindTimeout    = 10 * time.Second
	maxKindsLogged = 8
)

// infrastructure watches the kinds of infrastructure objects that Clusters name. Whoever
// may write a Cluster names them, so that one goroutine looks for all: it asks what is
// served for all at once, and forgets what no Cluster names.
type infrastructure struct {
	run      *kubeconfigRun
	interval time.Duration
	named    chan struct{}   // has an element if a kind is new
	served   meta.RESTMapper // by the last answer; only followKinds uses it

	mu    sync.Mutex // guards the field below
	kinds map[watchedKind]*infrastructureKind
}

// watchedKind is a kind in one cache.
type watchedKind struct {
	schema.GroupKind
	scope string // the cache's key in kubeconfigRun.own
}

type infrastructureKind struct {
	since    time.Time
	tries    int // that failed
	retryAt  time.Time
	object   *unstructured.Unstructured // empty
	informer cache.Informer             // nil until the kind is watched
}

// reference is a Cluster's spec.infrastructureRef.
type reference struct {
	schema.GroupKind
	types.NamespacedName
}

// readReference accepts apiGroup (v1beta2) and apiVersion (v1beta1). It returns the zero
// reference for none, and with an error.
func readReference(u *unstructured.Unstructured) (reference, error) {
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
		return reference{}, nil
	}
	if err := r.check(); err != nil {
		return reference{}, fmt.Errorf("spec.infrastructureRef: %w", err)
	}
	return r, nil
}

// check refuses what no CustomResourceDefinition can be. All objects of the kind are going
// to be watched, and Kubernetes' own kinds, such as Events, have many.
func (r reference) check() error {
	switch {
	case len(validation.IsDNS1123Subdomain(r.Group)) > 0:
		return errors.New("the API group is no DNS name")
	case !strings.Contains(r.Group, ".") || strings.HasSuffix("."+r.Group, ".k8s.io"):
		return fmt.Errorf("the API group %s is Kubernetes' own: want that of an infrastructure provider", r.Group)
	case len(validation.IsDNS1035Label(strings.ToLower(r.Kind))) > 0:
		return errors.New("the kind is none that a CustomResourceDefinition can have")
	case len(validation.IsDNS1123Subdomain(r.Name)) > 0:
		return errors.New("the name is none that an object can have")
	}
	return nil
}

// objectFor returns the object. It returns nil if the object doesn't exist, or if its kind
// can't be watched, and false while the cache is being filled.
func (i *infrastructure) objectFor(ctx context.Context, ref reference) (*unstructured.Unstructured, bool, error) {
	if ref == (reference{}) {
		return nil, true, nil
	}
	kind := i.ensureKind(i.keyOf(ref))
	if kind.informer == nil || !kind.informer.HasSynced() {
		return nil, time.Since(kind.since) > i.interval, nil
	}
	u := kind.object.DeepCopy()
	err := i.run.own.of(ref.Namespace).Get(ctx, ref.NamespacedName, u)
	if apierrors.IsNotFound(err) {
		return nil, true, nil
	}
	return u, true, err
}

func (i *infrastructure) keyOf(ref reference) watchedKind {
	return watchedKind{ref.GroupKind, i.run.own.scopeOf(ref.Namespace)}
}

// ensureKind returns a copy of what is known of the kind.
func (i *infrastructure) ensureKind(key watchedKind) infrastructureKind {
	i.mu.Lock()
	defer i.mu.Unlock()
	kind := i.kinds[key]
	if kind == nil {
		kind = &infrastructureKind{since: time.Now()}
		i.kinds[key] = kind
		trigger(i.named)
	}
	return *kind
}

// followKinds watches the kinds that Clusters name, until the controller ends.
func (i *infrastructure) followKinds() {
	ctx := i.run.ctx
	timer := time.NewTimer(i.interval)
	defer timer.Stop()
	mayAsk := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.named:
		case <-timer.C:
			i.forgetKinds(ctx)
			mayAsk = true
			timer.Reset(i.interval)
		}
		if i.watchKinds(ctx, mayAsk) {
			mayAsk = false
			timer.Reset(i.interval)
		}
	}
}

// forgetKinds stops to watch the kinds that no Cluster names.
func (i *infrastructure) forgetKinds(ctx context.Context) {
	i.mu.Lock()
	unnamed := maps.Clone(i.kinds)
	for _, ref := range i.run.state.infrastructures() { // Clusters are tracked before their kind is ensured
		delete(unnamed, i.keyOf(ref))
	}
	for key := range unnamed {
		delete(i.kinds, key)
	}
	i.mu.Unlock()
	for key, kind := range unnamed {
		if kind.informer == nil {
			continue
		}
		if err := i.run.own[key.scope].RemoveInformer(ctx, kind.object); err != nil {
			log.FromContext(ctx).Error(err, "End of a watch", "kind", key.String())
		}
	}
}

// watchKinds tries to watch the kinds whose turn it is. It reports whether it has asked
// what is served.
func (i *infrastructure) watchKinds(ctx context.Context, mayAsk bool) (asked bool) {
	due := i.dueKinds(time.Now())
	isUnknown := func(key watchedKind) bool { _, err := i.findKind(key); return err != nil }
	var err error
	if asked = mayAsk && slices.ContainsFunc(due, isUnknown); asked {
		err = i.askServed()
	}
	var failed []string
	for _, key := range due {
		mapping, wrong := i.findKind(key)
		switch {
		case wrong == nil:
			wrong = i.watchKind(ctx, key, mapping.GroupVersionKind)
		case !asked:
			continue // its turn comes with the next answer
		}
		if wrong != nil && i.noteFailure(key, time.Now()) == 1 {
			failed, err = append(failed, key.String()), cmp.Or(err, wrong)
		}
	}
	if len(failed) > 0 && ctx.Err() == nil {
		more := max(0, len(failed)-maxKindsLogged)
		log.FromContext(ctx).Error(err, "Infrastructure can't be watched: its Clusters have one endpoint for the time being", "kinds", failed[more:], "more", more)
	}
	return asked
}

// dueKinds returns the kinds that are not watched and to be tried now.
func (i *infrastructure) dueKinds(now time.Time) (due []watchedKind) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, kind := range i.kinds {
		if kind.informer == nil && !now.Before(kind.retryAt) {
			due = append(due, key)
		}
	}
	return due
}

// noteFailure returns how often the kind could not be watched.
func (i *infrastructure) noteFailure(key watchedKind, now time.Time) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	kind := i.kinds[key]
	kind.retryAt = now.Add(min(i.interval<<min(kind.tries, 10), maxKindRetry))
	kind.tries++
	return kind.tries
}

// askServed asks what kinds are served. What some API group does not answer is left out.
func (i *infrastructure) askServed() error {
	asks, err := discovery.NewDiscoveryClientForConfigAndClient(i.run.mgr.GetConfig(), i.run.mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(asks)
	if err == nil {
		i.served = restmapper.NewDiscoveryRESTMapper(groups)
	}
	return err
}

// findKind returns an error for a kind that is not served, by the last answer, and for one
// whose objects are in no namespace.
func (i *infrastructure) findKind(key watchedKind) (*meta.RESTMapping, error) {
	none := &meta.NoKindMatchError{GroupKind: key.GroupKind}
	if i.served == nil {
		return nil, none
	}
	mapping, err := i.served.RESTMapping(key.GroupKind)
	if err == nil && mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		err = none
	}
	return mapping, err
}

// watchKind has the events of a kind queue the Clusters that name it. It asks first
// whether the kind may be read: an informer would try again and again.
func (i *infrastructure) watchKind(ctx context.Context, key watchedKind, gvk schema.GroupVersionKind) error {
	limit, cancel := context.WithTimeout(ctx, kindTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	if err := i.run.mgr.GetAPIReader().List(limit, list, client.InNamespace(key.scope), client.Limit(1)); err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	informer, err := i.run.own[key.scope].GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	queue := func(object any) {
		name, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object) // no error: it is an object
		ref := reference{key.GroupKind, secretName(name)}
		for _, request := range i.run.state.findClusters(func(_ types.NamespacedName, c *clusterState) bool { return c.infrastructure == ref }) {
			i.run.queue.Add(request)
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: queue, UpdateFunc: func(_, object any) { queue(object) }, DeleteFunc: queue,
	}); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kinds[key].object, i.kinds[key].informer = object, informer
	return nil
}
