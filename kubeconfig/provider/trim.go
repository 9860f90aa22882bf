package provider

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What follows cuts objects down to what is read of them, before a cache
// keeps them. It may be called again on what it returned.

const caSuffix = "-ca"

// trimSecret keeps the data of a kubeconfig, of a CA, and of what the
// provider wrote. Secrets are written back: all but managedFields has to stay
// on these. (The API server keeps managedFields that an update leaves out.)
func trimSecret(object any) (any, error) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil
	}
	secret.ManagedFields = nil
	_, ours := secret.Annotations[AnnotationManager]
	if ours || strings.HasSuffix(secret.Name, kubeconfigSuffix) || strings.HasSuffix(secret.Name, caSuffix) {
		return secret, nil
	}
	secret.Data = nil
	return secret, nil
}

// trimRouteSecret keeps the data.
func trimRouteSecret(object any) (any, error) {
	if secret, ok := object.(*corev1.Secret); ok {
		secret.ManagedFields = nil
	}
	return object, nil
}

// trimNamespace keeps our annotations.
func trimNamespace(object any) (any, error) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:            ns.Name,
		UID:             ns.UID,
		ResourceVersion: ns.ResourceVersion,
		Annotations:     ourAnnotations(ns.Annotations),
	}}, nil
}

// trimmed are the fields of a Cluster that are kept, beside some of metadata.
var trimmed = [][]string{
	{"spec", "paused"},
	{"spec", "controlPlaneEndpoint"},
	{"spec", "controlPlaneRef"},
	{"spec", "infrastructureRef"},
}

func trimCluster(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := trimMeta(u)
	for _, path := range trimmed {
		keep(kept, u, path)
	}
	path := conditionsPath(u.GetAPIVersion())
	if list, ok, _ := unstructured.NestedSlice(u.Object, path...); ok {
		var ours []any
		for _, c := range list {
			if m, ok := c.(map[string]any); ok && m["type"] == ConditionRoute {
				ours = append(ours, c)
			}
		}
		if ours != nil {
			unstructured.SetNestedSlice(kept.Object, ours, path...)
		}
	}
	return kept, nil
}

// trimInfrastructure keeps the endpoints.
func trimInfrastructure(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := trimMeta(u)
	keep(kept, u, []string{"status", "apiEndpoints"})
	return kept, nil
}

func trimMeta(u *unstructured.Unstructured) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetAPIVersion(u.GetAPIVersion())
	kept.SetKind(u.GetKind())
	kept.SetNamespace(u.GetNamespace())
	kept.SetName(u.GetName())
	kept.SetUID(u.GetUID())
	kept.SetResourceVersion(u.GetResourceVersion())
	kept.SetDeletionTimestamp(u.GetDeletionTimestamp())
	if m := ourAnnotations(u.GetAnnotations()); m != nil {
		kept.SetAnnotations(m)
	}
	return kept
}

func keep(to, from *unstructured.Unstructured, path []string) {
	if v, ok, _ := unstructured.NestedFieldCopy(from.Object, path...); ok {
		unstructured.SetNestedField(to.Object, v, path...)
	}
}

func ourAnnotations(all map[string]string) map[string]string {
	var ours map[string]string
	for k, v := range all {
		if strings.HasPrefix(k, Prefix) || k == pausedAnnotation {
			if ours == nil {
				ours = map[string]string{}
			}
			ours[k] = v
		}
	}
	return ours
}
