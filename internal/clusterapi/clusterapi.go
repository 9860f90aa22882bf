// Package clusterapi has what all readers of Cluster API's Clusters need.
package clusterapi

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Group is the API group, and Kind the kind, of a Cluster.
const (
	Group = "cluster.x-k8s.io"
	Kind  = "Cluster"
)

// PausedAnnotation is Cluster API's, beside spec.paused. Its value says nothing.
const PausedAnnotation = Group + "/paused"

// IsPaused reports whether controllers are to skip a Cluster.
func IsPaused(cluster *unstructured.Unstructured) bool {
	_, annotated := cluster.GetAnnotations()[PausedAnnotation]
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	return annotated || paused
}

// ConditionsPath is where a Cluster has its conditions of type metav1.Condition.
func ConditionsPath(apiVersion string) []string {
	if strings.HasSuffix(apiVersion, "/v1beta1") {
		return []string{"status", "v1beta2", "conditions"}
	}
	return []string{"status", "conditions"}
}

// Condition returns a Cluster's condition of the type; nil without one.
func Condition(cluster *unstructured.Unstructured, conditionType string) *metav1.Condition {
	value, _, _ := unstructured.NestedFieldNoCopy(cluster.Object, ConditionsPath(cluster.GetAPIVersion())...)
	list, _ := value.([]any)
	for _, item := range list {
		var c metav1.Condition
		if m, _ := item.(map[string]any); m["type"] == conditionType && runtime.DefaultUnstructuredConverter.FromUnstructured(m, &c) == nil {
			return &c
		}
	}
	return nil
}

// IsOlder reports whether resourceVersion a is before b. It is false if one of them is not
// a number. (apimachinery compares them since 0.35.)
func IsOlder(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}
