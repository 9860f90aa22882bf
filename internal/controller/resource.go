package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/causewayproject/causeway/internal/backoff"
)

// Group is that of Cluster API's Clusters.
const Group = "cluster.x-k8s.io"

// clusterVersions are the versions of Clusters that we read, the preferred one first.
var clusterVersions = []string{"v1beta2", "v1beta1"}

// NoCRD is the text of the error for an API server that serves no Clusters,
// after the package's name.
const NoCRD = ": the API server serves no clusters.cluster.x-k8s.io in v1beta2 or v1beta1: install Cluster API's CustomResourceDefinitions"

// ClusterResource finds the version of Clusters that is served. It tries until
// it knows; false means that ctx ended first. missing is the error if no version is
// served.
func (c *Controller) ClusterResource(ctx context.Context, missing error) (schema.GroupVersionResource, bool) {
	wait := backoff.Backoff{First: time.Second}
	for {
		gvr, err := c.servedVersion(ctx, missing)
		if err == nil {
			return gvr, true
		}
		if ctx.Err() != nil {
			return gvr, false
		}
		c.Health.Failed(err)
		c.reportError(err)
		select {
		case <-ctx.Done():
			return gvr, false
		case <-time.After(wait.Next(0)):
		}
	}
}

func (c *Controller) servedVersion(ctx context.Context, missing error) (schema.GroupVersionResource, error) {
	for _, version := range clusterVersions {
		gvr := schema.GroupVersionResource{Group: Group, Version: version, Resource: "clusters"}
		list, err := c.Resources(ctx, gvr.GroupVersion())
		if err != nil {
			return gvr, err
		}
		if slices.ContainsFunc(list, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }) {
			return gvr, nil
		}
	}
	return schema.GroupVersionResource{}, missing
}

// Resources asks what is served of a group and version: nothing, and no error,
// if it is unknown.
func (c *Controller) Resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	// Of the discovery client's own methods none takes a context.
	var list metav1.APIResourceList
	err := c.Kube.Discovery().RESTClient().Get().AbsPath("/apis/" + gv.String()).Do(ctx).Into(&list)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: what the API server serves of %s: %w", c.Name, gv, err)
	}
	return list.APIResources, nil
}
