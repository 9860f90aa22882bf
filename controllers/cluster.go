package controllers

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const (
	clusterGroup = "cluster.x-k8s.io"
	clusterKind  = "Cluster"

	// pausedAnnotation is Cluster API's, beside spec.paused. Its value says nothing.
	pausedAnnotation = clusterGroup + "/paused"
	// watchFilterLabel is Cluster API's: its value says which controllers look after
	// a Cluster.
	watchFilterLabel = clusterGroup + "/watch-filter"
)

// ErrNoCRD says that the API server serves no Clusters.
var ErrNoCRD = errors.New("controllers: the API server serves no clusters.cluster.x-k8s.io in v1beta2 or v1beta1: install Cluster API's CustomResourceDefinitions")

// servedClusters returns an empty Cluster of the version that is served.
func servedClusters(mapper meta.RESTMapper) (*unstructured.Unstructured, error) {
	for _, version := range []string{"v1beta2", "v1beta1"} {
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: clusterGroup, Kind: clusterKind}, version)
		if err == nil {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(mapping.GroupVersionKind)
			return u, nil
		}
		if !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("controllers: what the API server serves of %s: %w", clusterGroup, err)
		}
	}
	return nil, ErrNoCRD
}

// hasWatchFilter accepts the objects with the value of Cluster API's watch filter
// label; all, if the value is empty.
func hasWatchFilter(value string) predicate.TypedPredicate[*unstructured.Unstructured] {
	return predicate.NewTypedPredicateFuncs(func(u *unstructured.Unstructured) bool {
		return value == "" || u.GetLabels()[watchFilterLabel] == value
	})
}

// conditionsPath is where a Cluster has its conditions of type metav1.Condition.
func conditionsPath(apiVersion string) []string {
	if strings.HasSuffix(apiVersion, "/v1beta1") {
		return []string{"status", "v1beta2", "conditions"}
	}
	return []string{"status", "conditions"}
}

// writeError says which write failed, of what kind of object, and leaves out what an
// API server quotes of the object that it refuses. A nil err stays nil.
func writeError(verb, kind string, object types.NamespacedName, err error) error {
	if err == nil {
		return nil
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return fmt.Errorf("%s %s %s: the API server finds it invalid (%s)", verb, kind, object, apierrors.ReasonForError(err))
	}
	return fmt.Errorf("%s %s %s: %w", verb, kind, object, err)
}

// isOlder reports whether resourceVersion a is before b. It is false if one of
// them is not a number. (apimachinery compares them since 0.35.)
func isOlder(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

// nameOf returns the object's namespace and name.
func nameOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }
