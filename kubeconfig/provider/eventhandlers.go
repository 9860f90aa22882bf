package provider

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/causewayproject/causeway/internal/controller"
	"github.com/causewayproject/causeway/kubeconfig"
)

// The handlers of this file get the changes of objects, and queue the Clusters that
// depend on them.

func (r *run) clusterChanged(old, new any) {
	u, ok := controller.Either[*unstructured.Unstructured](old, new)
	if !ok {
		return
	}
	before, _ := old.(*unstructured.Unstructured)
	after, _ := new.(*unstructured.Unstructured)
	if before != nil && after != nil && sameCluster(before, after) {
		return
	}
	r.queue.Add(controller.NameOf(u))
}

// sameCluster compares the fields that the cache keeps. Other fields of a Cluster's
// status change all the time.
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
				r.state.noteVersion(key, controller.NameOf(secret), secret.ResourceVersion)
				r.queue.Add(key)
			}
		}
	}
}

func (r *run) routeChanged(old, new any) {
	secret, ok := controller.Either[*corev1.Secret](old, new)
	if !ok {
		return
	}
	for _, cluster := range r.state.usersOf(controller.NameOf(secret)) {
		r.queue.Add(cluster)
	}
}

func (r *run) namespaceChanged(old, new any) {
	ns, ok := controller.Either[*corev1.Namespace](old, new)
	if !ok {
		return
	}
	before, _ := old.(*corev1.Namespace)
	after, _ := new.(*corev1.Namespace)
	if before != nil && after != nil && maps.Equal(before.Annotations, after.Annotations) {
		return
	}
	for _, informer := range r.clusters {
		objects, _ := informer.GetIndexer().ByIndex(cache.NamespaceIndex, ns.Name)
		for _, object := range objects {
			if u, ok := object.(*unstructured.Unstructured); ok {
				r.queue.Add(controller.NameOf(u))
			}
		}
	}
}
