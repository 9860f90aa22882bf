package provider

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/controller"
)

// The functions of this file reduce objects to the fields that are read, before a
// cache keeps them. A second call on the result changes nothing.

const caSuffix = "-ca"

// transformSecret keeps the data of a kubeconfig, of a CA, and of Secrets that the
// provider wrote. The provider updates these Secrets, so everything but managedFields
// has to stay in them. (The API server keeps managedFields that an update leaves out.)
func transformSecret(object any) (any, error) {
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

// transformRouteSecret keeps the data.
func transformRouteSecret(object any) (any, error) {
	if secret, ok := object.(*corev1.Secret); ok {
		secret.ManagedFields = nil
	}
	return object, nil
}

// transformNamespace keeps our annotations.
func transformNamespace(object any) (any, error) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:            ns.Name,
		UID:             ns.UID,
		ResourceVersion: ns.ResourceVersion,
		Annotations:     controller.Annotations(ns.Annotations, ownAnnotation),
	}}, nil
}

// keptFields are kept of a Cluster, beside some of metadata.
var keptFields = [][]string{
	{"spec", "paused"},
	{"spec", "controlPlaneEndpoint"},
	{"spec", "controlPlaneRef"},
	{"spec", "infrastructureRef"},
}

func transformCluster(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := controller.Trim(u, ownAnnotation, keptFields...)
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

// transformInfrastructure keeps the endpoints.
func transformInfrastructure(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	return controller.Trim(u, ownAnnotation, []string{"status", "apiEndpoints"}), nil
}

func ownAnnotation(annotation string) bool {
	return strings.HasPrefix(annotation, Prefix) || annotation == controller.PausedAnnotation
}
