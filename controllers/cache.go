package controllers

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// CacheOptions are what the reconcilers want of the manager's cache: of Secrets those
// labelled with cluster.x-k8s.io/cluster-name, as Cluster API's own controllers have it,
// and of unstructured Clusters the fields that are read. Typed Clusters keep all
// fields. The Secrets in all caches together take a quarter of GOMEMLIMIT at most, 128 MiB without
// one. One namespace may use half of what other namespaces do not use. A Secret beyond that stays
// in the cache without its data, and with the annotation causewayproject.github.io/omitted: the
// reconcilers read it from the API server. Lists come in pages of 8 objects, of 2 unstructured ones.
// Without namespaces, it has those of all. If you have options of your own, merge the two. Without
// these, the reconcilers work and hold more memory.
func CacheOptions(namespaces ...string) cache.Options {
	opts := cache.Options{
		NewInformer:      newPagedInformer,
		DefaultTransform: trimClusters,
		ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: parseSelector(kubeconfig.ClusterNameLabel), Transform: trimData}},
	}
	for _, ns := range namespaces {
		if opts.DefaultNamespaces == nil {
			opts.DefaultNamespaces = map[string]cache.Config{}
		}
		opts.DefaultNamespaces[ns] = cache.Config{}
	}
	return opts
}

// parseSelector is for constants.
func parseSelector(text string) labels.Selector {
	s, err := labels.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

// ownCaches are a reconciler's beside the manager's, which can have only one selector
// for a kind: one for each namespace, or a single one, "", for all.
type ownCaches map[string]cache.Cache

// of returns the cache that objects of the namespace are in; nil if none is.
func (c ownCaches) of(namespace string) cache.Cache {
	return c[c.scopeOf(namespace)]
}

// scopeOf returns the key of the cache that objects of the namespace are in.
func (c ownCaches) scopeOf(namespace string) string {
	if c[namespace] != nil {
		return namespace
	}
	return metav1.NamespaceAll
}

// addCache adds a cache of a namespace, "" for all, to the manager, which starts it
// before its controllers, and waits until it is filled.
func (c ownCaches) addCache(mgr manager.Manager, namespace string, opts cache.Options) error {
	opts.HTTPClient, opts.Scheme, opts.Mapper, opts.NewInformer = takeTurns(mgr.GetHTTPClient(), decoding), mgr.GetScheme(), mgr.GetRESTMapper(), newPagedInformer
	if namespace != metav1.NamespaceAll {
		opts.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	own, err := cache.New(mgr.GetConfig(), opts)
	if err != nil {
		return err
	}
	whole := wholeCache{own, mgr.GetAPIReader()}
	c[namespace] = whole
	return mgr.Add(whole)
}

// addFilled adds a cache of these objects, which every replica fills, leader or not. Callers
// must not change the objects that they read from it.
func (c ownCaches) addFilled(ctx context.Context, mgr manager.Manager, namespace string, objects map[client.Object]cache.ByObject) error {
	shared := true
	err := c.addCache(mgr, namespace, cache.Options{
		ByObject: objects, DefaultTransform: cache.TransformStripManagedFields(), DefaultUnsafeDisableDeepCopy: &shared,
	})
	if err != nil {
		return err
	}
	return fillCache(ctx, c[namespace], slices.Collect(maps.Keys(objects))...)
}

// fillCache has the cache watch the objects as soon as it is started, whether this
// process is the leader or not.
func fillCache(ctx context.Context, from cache.Cache, objects ...client.Object) error {
	for _, object := range objects {
		if _, err := from.GetInformer(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// scopesOf are the namespaces to watch: "" for all, if none are named.
func scopesOf(namespaces []string) []string {
	if len(namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return slices.Compact(slices.Sorted(slices.Values(namespaces)))
}

// isWatched reports whether Clusters of the namespace are looked after.
func isWatched(namespaces []string, namespace string) bool {
	return len(namespaces) == 0 || slices.Contains(namespaces, namespace)
}

// trimClusters reduces unstructured Clusters, and leaves other objects as they are. A
// second call on the result changes nothing.
func trimClusters(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || u.GroupVersionKind().Group != clusterapi.Group || u.GetKind() != clusterapi.Kind {
		return object, nil
	}
	isConditions := func(path []string) bool { return path[len(path)-1] == "conditions" }
	paths := append(provider.ClusterFields(), []string{"spec", "clusterNetwork"}, []string{"spec", "infrastructureRef"})
	kept := trimObject(u, slices.DeleteFunc(paths, isConditions)...)
	keepConditions(kept, u, clusterapi.ConditionsPath(u.GetAPIVersion())...)
	return kept, nil
}

// keepConditions copies those conditions that are ours. Such as are too large are not: they are
// written anew.
func keepConditions(kept, u *unstructured.Unstructured, path ...string) {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	var own []any
	all, _ := list.([]any)
	for _, c := range all {
		m, _ := c.(map[string]any)
		if kind := m["type"]; kind == provider.ConditionRoute || kind == provider.ConditionTunnel {
			own = append(own, c)
		}
	}
	if own != nil && sizeOf(own) <= 4*maxPart {
		_ = unstructured.SetNestedSlice(kept.Object, own, path...) // no error: it was a list
	}
}

// trimObject returns a new object with what names u, its labels and annotations that are
// read, and the fields of the paths.
func trimObject(u *unstructured.Unstructured, paths ...[]string) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetGroupVersionKind(u.GroupVersionKind())
	kept.SetNamespace(u.GetNamespace())
	kept.SetName(u.GetName())
	kept.SetUID(u.GetUID())
	kept.SetResourceVersion(u.GetResourceVersion())
	kept.SetGeneration(u.GetGeneration())
	kept.SetDeletionTimestamp(u.GetDeletionTimestamp())
	kept.SetLabels(keepNames(u.GetLabels(), func(name string) bool { return name == watchFilterLabel || name == provider.LabelTunnel }))
	kept.SetAnnotations(ownAnnotations(u.GetAnnotations()))
	for _, path := range paths {
		v, ok, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		switch {
		case sizeOf(v) > maxPart:
			kept.SetAnnotations(tooLarge(strings.Join(path, "."), kept.GetAnnotations()))
		case ok:
			_ = unstructured.SetNestedField(kept.Object, v, path...) // no error: nothing is in its place
		}
	}
	return kept
}

// maxPart is how many bytes a cache holds of an object's annotations, and of each of its fields.
const maxPart = 16 << 10

// tooLarge is put in the place of annotations, and has a mode that none is, so that people are told.
func tooLarge(what string, annotations map[string]string) map[string]string {
	told := map[string]string{provider.AnnotationMode: what + clusterapi.LargeSuffix}
	if _, paused := annotations[clusterapi.PausedAnnotation]; paused {
		told[clusterapi.PausedAnnotation] = ""
	}
	return told
}

// sizeOf is what a value of JSON takes in memory.
func sizeOf(value any) int {
	size := 16
	switch v := value.(type) {
	case string:
		size += len(v)
	case []any:
		for _, item := range v {
			size += sizeOf(item)
		}
	case map[string]any:
		size += 48
		for name, item := range v {
			size += entryBytes + len(name) + sizeOf(item)
		}
	}
	return size
}

// ownAnnotations returns a copy of the annotations that are read, or nil. If they are too large, it
// has a mode in their place that none is, so that people are told.
func ownAnnotations(all map[string]string) map[string]string {
	kept := keepNames(all, func(name string) bool {
		return strings.HasPrefix(name, provider.Prefix) || name == clusterapi.PausedAnnotation
	})
	size := 0
	for name, value := range kept {
		size += entryBytes + len(name) + len(value)
	}
	if size > maxPart {
		return tooLarge("annotations", kept)
	}
	return kept
}

// keepNames returns a copy with the names that match; nil if none do.
func keepNames(all map[string]string, match func(name string) bool) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(name, _ string) bool { return !match(name) })
	if len(kept) == 0 {
		return nil
	}
	return kept
}
