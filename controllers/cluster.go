package controllers

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/printable"
)

const (
	clusterGroup = clusterapi.Group
	clusterKind  = clusterapi.Kind

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

// passesFilter reports whether the object has the value of Cluster API's watch filter
// label. All do if the value is empty.
func passesFilter(object client.Object, value string) bool {
	return value == "" || object.GetLabels()[watchFilterLabel] == value
}

// refusedError is an object that the API server finds invalid. Its text leaves out what
// the API server quotes of the object; Unwrap returns it all.
type refusedError struct {
	text string
	err  error
}

// Error says which fields are invalid, and quotes none.
func (e *refusedError) Error() string { return e.text }

// Unwrap returns the API server's error.
func (e *refusedError) Unwrap() error { return e.err }

// writeError says which write failed, of what kind of object, and leaves out what an
// API server quotes of the object that it refuses. What a policy says of it is kept: its
// author wrote that for people. A nil err stays nil.
func writeError(verb, kind string, object types.NamespacedName, err error) error {
	if err == nil {
		return nil
	}
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return fmt.Errorf("%s %s %s: %w", verb, kind, object, err)
	}
	if refusal := policyRefusal(err); refusal != "" {
		return &refusedError{fmt.Sprintf("%s %s %s: %s", verb, kind, object, refusal), err}
	}
	var fields []string
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			text := cause.Field + " " + strings.TrimPrefix(string(cause.Type), "FieldValue")
			if cause.Type == metav1.CauseType(field.ErrorTypeForbidden) { // which quotes no value
				text = cause.Field + " " + cause.Message
			}
			fields = append(fields, text)
		}
	}
	text := fmt.Sprintf("%s %s %s: the API server finds it invalid", verb, kind, object)
	if len(fields) > 0 {
		text += ": " + strings.Join(fields, ", ")
	}
	return &refusedError{text, err}
}

// policyRefusal returns what a ValidatingAdmissionPolicy says of an object that it refuses; ""
// if another part of the API server refuses it, whose text may quote the object.
func policyRefusal(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field != "" { // of a validation, which quotes values
			return ""
		}
	}
	const mark = " is forbidden: ValidatingAdmissionPolicy '"
	_, refusal, ok := strings.Cut(status.Status().Message, mark)
	if !ok {
		return ""
	}
	return printable.Text("forbidden: ValidatingAdmissionPolicy '"+refusal, 2*printable.Most)
}

// nameOf returns the object's namespace and name.
func nameOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }
