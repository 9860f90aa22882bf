package provider

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/controller"
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
		Annotations:     controller.Annotations(ns.Annotations, ours),
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
	kept := controller.Trim(u, ours, trimmed...)
	path := conditionsPath(u.GetAPIVersion())
	if list, ok, _ := unstructured.NestedSlice(u.Object, path...); ok {
		var conditions []any
		for _, c := range list {
			if m, ok := c.(map[string]any); ok && m["type"] == ConditionRoute {
				conditions = append(conditions, c)
			}
		}
		if conditions != nil {
			unstructured.SetNestedSlice(kept.Object, conditions, path...)
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
	return controller.Trim(u, ours, []string{"status", "apiEndpoints"}), nil
}

func ours(annotation string) bool {
	return strings.HasPrefix(annotation, Prefix) || annotation == controller.PausedAnnotation
}
