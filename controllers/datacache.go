package controllers

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// annotationOmitted is on an object in a cache of which only the names are kept.
const annotationOmitted = provider.Prefix + "omitted"

// dataShares bounds what Secrets and ConfigMaps of tenants take in all caches of the process, since
// a tenant can make and label any number. One namespace may use half of what other namespaces do
// not use. An object beyond that stays in the cache without its data; who needs that reads the
// object from the API server.
type dataShares struct {
	most int // bytes

	mu   sync.Mutex // guards the fields below
	all  int        // bytes
	held map[string]int
}

// keptData has a quarter of GOMEMLIMIT; 128 MiB without one.
var keptData = sync.OnceValue(func() *dataShares {
	most := int64(128 << 20)
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		most = limit / 4
	}
	return &dataShares{most: int(most), held: map[string]int{}}
})

// trimData is the transformation of a cache with objects of tenants.
func trimData(object any) (any, error) { return keptData().trim(object) }

func (k *dataShares) trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Secret:
		kept := *o
		if keepObject(k, &kept, &kept.ObjectMeta, kept.Size, len(kept.Data)+len(kept.StringData)) {
			kept.ManagedFields = valueManagers(o)
			return &kept, nil
		}
		return &corev1.Secret{TypeMeta: o.TypeMeta, ObjectMeta: namesOf(o)}, nil
	case *corev1.ConfigMap:
		kept := *o
		if keepObject(k, &kept, &kept.ObjectMeta, kept.Size, len(kept.Data)+len(kept.BinaryData)) {
			return &kept, nil
		}
		return &corev1.ConfigMap{TypeMeta: o.TypeMeta, ObjectMeta: namesOf(o)}, nil
	}
	return object, nil
}

var valueField = &metav1.FieldsV1{Raw: []byte(`{"f:data":{"f:value":{}}}`)}

// valueManagers are the managers of fields that have written a kubeconfig: provider.Plan names the last.
func valueManagers(s *corev1.Secret) (kept []metav1.ManagedFieldsEntry) {
	for _, f := range s.ManagedFields {
		if clusterapi.WritesValue(f) {
			kept = append(kept, metav1.ManagedFieldsEntry{Manager: f.Manager, Time: f.Time, FieldsV1: valueField})
		}
	}
	return kept
}

// entryBytes is what an entry of a map or a list takes, beside its text.
const entryBytes = 128

// keepObject reports whether the object is kept whole. It then counts for as long as it lives: its
// texts, and its entries.
func keepObject[T any](k *dataShares, object *T, meta *metav1.ObjectMeta, texts func() int, entries int) bool {
	meta.ManagedFields = nil
	entries += len(meta.Labels) + len(meta.Annotations) + len(meta.OwnerReferences) + len(meta.Finalizers)
	p := dataPart{meta.Namespace, texts() + entries*entryBytes + 1<<10}
	if !k.take(p) {
		return false
	}
	runtime.AddCleanup(object, k.give, p)
	return true
}

// namesOf is what is left of an object's metadata: what tells whose it is.
func namesOf(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		Labels:      map[string]string{kubeconfig.ClusterNameLabel: strings.Clone(object.GetLabels()[kubeconfig.ClusterNameLabel])},
		Annotations: map[string]string{annotationOmitted: ""},
	}
}

// dataPart is what an object takes.
type dataPart struct {
	namespace string
	bytes     int
}

func (k *dataShares) take(p dataPart) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	others := k.all - k.held[p.namespace]
	if k.held[p.namespace]+p.bytes > (k.most-others)/2 {
		return false
	}
	k.all += p.bytes
	k.held[p.namespace] += p.bytes
	return true
}

func (k *dataShares) give(p dataPart) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all -= p.bytes
	if k.held[p.namespace] -= p.bytes; k.held[p.namespace] == 0 {
		delete(k.held, p.namespace)
	}
}

// wholeCache is a cache that asks the API server for an object of which it has only the names.
type wholeCache struct {
	cache.Cache
	live client.Reader
}

// GetCache is what the manager knows a cache by.
func (c wholeCache) GetCache() cache.Cache { return c.Cache }

// Get implements client.Reader.
func (c wholeCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	err := c.Cache.Get(ctx, key, object, opts...)
	if _, omitted := object.GetAnnotations()[annotationOmitted]; omitted && err == nil {
		err = c.live.Get(ctx, key, object, opts...)
	}
	return err
}
