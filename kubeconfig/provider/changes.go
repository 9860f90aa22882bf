package provider

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/causewayproject/causeway/kubeconfig"
)

// What follows is told of changes, and queues the Clusters that they matter to.

// either returns what is there: of the old and the new object one may be nil.
func either[T any](old, new any) (object T, ok bool) {
	if object, ok = new.(T); !ok {
		object, ok = old.(T)
	}
	return object, ok
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func (r *run) clusterChanged(old, new any) {
	u, ok := either[*unstructured.Unstructured](old, new)
	if !ok {
		return
	}
	before, _ := old.(*unstructured.Unstructured)
	after, _ := new.(*unstructured.Unstructured)
	if before != nil && after != nil && sameCluster(before, after) {
		return
	}
	r.queue.Add(nameOf(u))
}

// sameCluster compares what is kept of a Cluster: its status changes all the
// time.
func sameCluster(a, b *unstructured.Unstructured) bool {
	return a.GetUID() == b.GetUID() &&
		(a.GetDeletionTimestamp() == nil) == (b.GetDeletionTimestamp() == nil) &&
		maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		reflect.DeepEqual(a.Object["spec"], b.Object["spec"]) &&
		reflect.DeepEqual(a.Object["status"], b.Object["status"])
}

func (r *run) secretChanged(old, new any) {
	for _, object := range []any{old, new} {
		if secret, ok := object.(*corev1.Secret); ok && secret != nil {
			if name := secret.Labels[kubeconfig.ClusterNameLabel]; name != "" {
				key := types.NamespacedName{Namespace: secret.Namespace, Name: name}
				r.ledger.saw(key, nameOf(secret), secret.ResourceVersion)
				r.queue.Add(key)
			}
		}
	}
}

func (r *run) routeChanged(old, new any) {
	secret, ok := either[*corev1.Secret](old, new)
	if !ok {
		return
	}
	for _, cluster := range r.ledger.usersOf(nameOf(secret)) {
		r.queue.Add(cluster)
	}
}

func (r *run) namespaceChanged(old, new any) {
	ns, ok := either[*corev1.Namespace](old, new)
	if !ok {
		return
	}
	before, _ := old.(*corev1.Namespace)
	after, _ := new.(*corev1.Namespace)
	if before != nil && after != nil && maps.Equal(before.Annotations, after.Annotations) {
		return
	}
	for _, informer := range r.clusters.byNamespace {
		objects, _ := informer.GetIndexer().ByIndex(cache.NamespaceIndex, ns.Name)
		for _, object := range objects {
			if u, ok := object.(*unstructured.Unstructured); ok {
				r.queue.Add(nameOf(u))
			}
		}
	}
}
