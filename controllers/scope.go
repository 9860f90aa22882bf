package controllers

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// checkScope asks the API server whether a Cluster is still the one that a cache had, and
// says the same. If the cached one has no UID, the cache had none, and there must be none. It is
// called right before each write. If something differs, the error is errCacheLate: the cache will
// show the change.
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
