package controllers

import (
	"cmp"
	"context"
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
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// watchFilterLabel is Cluster API's: its value says which controllers look after
// a Cluster.
const watchFilterLabel = clusterapi.Group + "/watch-filter"

// ErrNoCRD says that the API server serves no Clusters.
var ErrNoCRD = errors.New("controllers: the API server serves no clusters.cluster.x-k8s.io in v1beta2 or v1beta1: install Cluster API's CustomResourceDefinitions")

// servedClusters returns an empty Cluster of the version that is served.
func servedClusters(mapper meta.RESTMapper) (*unstructured.Unstructured, error) {
	for _, version := range []string{"v1beta2", "v1beta1"} {
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: clusterapi.Group, Kind: clusterapi.Kind}, version)
		if err == nil {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(mapping.GroupVersionKind)
			return u, nil
		}
		if !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("controllers: what the API server serves of %s: %w", clusterapi.Group, err)
		}
	}
	return nil, ErrNoCRD
}

// namedCluster returns a Cluster of the version of kind that has only a name and a UID.
func namedCluster(kind *unstructured.Unstructured, key types.NamespacedName, uid types.UID) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind.GroupVersionKind())
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	u.SetUID(uid)
	return u
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
	return &refusedError{fmt.Sprintf("%s %s %s: %s", verb, kind, object, refusalText(err)), err}
}

// refusalText returns what a ValidatingAdmissionPolicy says of an object that it refuses. If
// another part of the API server refuses it, whose text may quote the object, it is the fields.
func refusalText(err error) string {
	const invalid, mark = "the API server finds it invalid", " is forbidden: ValidatingAdmissionPolicy '"
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return invalid
	}
	var causes []string
	validated := false // the text quotes values
	for _, cause := range status.Status().Details.Causes {
		text := cause.Field + " " + strings.TrimPrefix(string(cause.Type), "FieldValue")
		if cause.Type == metav1.CauseType(field.ErrorTypeForbidden) { // which quotes no value
			text = cause.Field + " " + cause.Message
		}
		causes, validated = append(causes, text), validated || cause.Field != ""
	}
	_, refusal, ok := strings.Cut(status.Status().Message, mark)
	switch {
	case ok && !validated:
		return printable.Text("forbidden: ValidatingAdmissionPolicy '"+refusal, 2*printable.Most)
	case len(causes) > 0:
		return invalid + ": " + strings.Join(causes, ", ")
	}
	return invalid
}

// nameOf returns the object's namespace and name.
func nameOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }

// checkScope asks the API server whether a Cluster is still the one that a cache had, and
// says the same. If the cached one has no UID, the cache had none, and there must be none. If
// something differs, the error is errCacheLate: the cache will show the change. It is called right
// before a write; for the other writes of the same plan the answer holds for scopeTime.
func checkScope(ctx context.Context, live client.Reader, cached *unstructured.Unstructured) error {
	now, err := liveCluster(ctx, live, cached, nameOf(cached))
	if err != nil {
		return err
	}
	now = cmp.Or(now, &unstructured.Unstructured{})
	if scopeOf(now) != scopeOf(cached) {
		return errCacheLate
	}
	return nil
}

// liveCluster returns the Cluster that the API server has, of the same kind; nil for none. Without the
// right to get it, it lists, which a controller that watches may do. An API server answers a list when
// its own cache has seen all writes, of other kinds too: that takes up to a tenth of a second.
func liveCluster(ctx context.Context, live client.Reader, kind *unstructured.Unstructured, name types.NamespacedName) (*unstructured.Unstructured, error) {
	u := namedCluster(kind, name, "")
	err := live.Get(ctx, name, u)
	switch {
	case err == nil:
		return u, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case !apierrors.IsForbidden(err):
		return nil, writeError("get", clusterapi.Kind, name, err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersionKind())
	err = live.List(ctx, list, client.InNamespace(name.Namespace), client.MatchingFields{metav1.ObjectNameField: name.Name})
	if err != nil {
		return nil, writeError("list", clusterapi.Kind, name, err)
	}
	for i := range list.Items {
		if nameOf(&list.Items[i]) == name {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// clusterScope is what decides whether a reconciler looks after a Cluster, and what it writes.
type clusterScope struct {
	uid              types.UID
	paused, deleting bool
	filter, tunnel   string // values of labels
	generation       int64
	annotations      string
}

func scopeOf(u *unstructured.Unstructured) clusterScope {
	return clusterScope{
		uid: u.GetUID(), paused: clusterapi.IsPaused(u), deleting: u.GetDeletionTimestamp() != nil,
		filter: u.GetLabels()[watchFilterLabel], tunnel: u.GetLabels()[provider.LabelTunnel],
		generation: u.GetGeneration(), annotations: fmt.Sprint(ownAnnotations(u.GetAnnotations())), // in the order of names
	}
}
