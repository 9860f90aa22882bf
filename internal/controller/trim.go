package controller

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PausedAnnotation is Cluster API's, beside spec.paused. Its value says nothing.
const PausedAnnotation = "cluster.x-k8s.io/paused"

// Paused reports whether controllers are to skip a Cluster.
func Paused(cluster *unstructured.Unstructured) bool {
	_, annotated := cluster.GetAnnotations()[PausedAnnotation]
	said, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	return annotated || said
}

// Trim returns a new object with what names u, the annotations that wanted
// accepts, and the fields of the paths.
func Trim(u *unstructured.Unstructured, wanted func(annotation string) bool, paths ...[]string) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetAPIVersion(u.GetAPIVersion())
	kept.SetKind(u.GetKind())
	kept.SetNamespace(u.GetNamespace())
	kept.SetName(u.GetName())
	kept.SetUID(u.GetUID())
	kept.SetResourceVersion(u.GetResourceVersion())
	kept.SetDeletionTimestamp(u.GetDeletionTimestamp())
	if m := Annotations(u.GetAnnotations(), wanted); m != nil {
		kept.SetAnnotations(m)
	}
	for _, path := range paths {
		if v, ok, _ := unstructured.NestedFieldCopy(u.Object, path...); ok {
			unstructured.SetNestedField(kept.Object, v, path...)
		}
	}
	return kept
}

// Annotations returns a copy of the wanted ones; nil without any.
func Annotations(all map[string]string, wanted func(name string) bool) map[string]string {
	var kept map[string]string
	for k, v := range all {
		if wanted(k) {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[k] = v
		}
	}
	return kept
}
