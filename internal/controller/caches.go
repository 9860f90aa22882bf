package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Caches are those of one kind of objects: one for each Namespace that is
// watched, or a single one, "", for all.
type Caches map[string]cache.SharedIndexInformer

// Of returns the cache that objects of the Namespace are in; nil if none is.
func (c Caches) Of(namespace string) cache.SharedIndexInformer {
	if informer := c[namespace]; informer != nil {
		return informer
	}
	return c[metav1.NamespaceAll]
}

// Get returns nil if there is no such object. It is the cache's own.
func (c Caches) Get(namespace, name string) any {
	informer := c.Of(namespace)
	if informer == nil {
		return nil
	}
	object, _, _ := informer.GetStore().GetByKey(cache.ObjectName{Namespace: namespace, Name: name}.String())
	return object
}

// Secret is Get for a cache of Secrets.
func (c Caches) Secret(key types.NamespacedName) *corev1.Secret {
	secret, _ := c.Get(key.Namespace, key.Name).(*corev1.Secret)
	return secret
}

// Namespace is Get for caches of Namespaces, which are in none themselves.
func (c Caches) Namespace(name string) *corev1.Namespace {
	informer := c.Of(name)
	if informer == nil {
		return nil
	}
	object, _, _ := informer.GetStore().GetByKey(name)
	ns, _ := object.(*corev1.Namespace)
	return ns
}

// Scopes are the Namespaces to watch: "" for all, if none are named.
func Scopes(namespaces []string) []string {
	if len(namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return slices.Compact(slices.Sorted(slices.Values(namespaces)))
}

// Version returns a resourceVersion that the cache of the Namespace has reached:
// what is read from it afterwards is not older. The informer's own version is
// ahead of its store.
func (c *Controller) Version(caches Caches, namespace string) string {
	if version, ok := c.versions.Load(caches.Of(namespace)); ok {
		return version.(string)
	}
	return "0"
}

// noteVersion is called after the object was stored, or was removed.
func (c *Controller) noteVersion(informer cache.SharedIndexInformer, object any) {
	m, err := meta.Accessor(object)
	if err != nil {
		return
	}
	last, ok := c.versions.Load(informer)
	if !ok || !Older(m.GetResourceVersion(), last.(string)) {
		c.versions.Store(informer, m.GetResourceVersion())
	}
}

// Start runs an informer until ctx ends. changed gets a nil old for an object
// that was added, and a nil new for one that was deleted.
func (c *Controller) Start(ctx context.Context, wg *sync.WaitGroup, informer cache.SharedIndexInformer, what string, trim cache.TransformFunc, changed func(old, new any)) error {
	err := informer.SetTransform(trim)
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if ctx.Err() == nil {
				c.reportError(fmt.Errorf("%s: watch %s: %w", c.Name, what, err))
			}
		})
	}
	if err == nil {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) {
				c.noteVersion(informer, object)
				changed(nil, object)
			},
			UpdateFunc: func(old, object any) {
				c.noteVersion(informer, object)
				changed(old, object)
			},
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				c.noteVersion(informer, object)
				changed(object, nil)
			},
		})
	}
	if err != nil {
		return fmt.Errorf("%s: watch %s: %w", c.Name, what, err)
	}
	wg.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

// Sync waits until the caches are filled, false if ctx ended first.
func Sync(ctx context.Context, kinds ...Caches) bool {
	var synced []cache.InformerSynced
	for _, caches := range kinds {
		for _, informer := range caches {
			synced = append(synced, informer.HasSynced)
		}
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

// Either returns the new object, or the old one if that is nil.
func Either[T any](old, new any) (object T, ok bool) {
	if object, ok = new.(T); !ok {
		object, ok = old.(T)
	}
	return object, ok
}

// NameOf returns the object's name and Namespace.
func NameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}
