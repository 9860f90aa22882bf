package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/causewayproject/causeway/internal/backoff"
)

// clusterVersions are those that are understood, the preferred one first.
var clusterVersions = []string{"v1beta2", "v1beta1"}

// ErrNoCRD says that the API server serves no Clusters.
var ErrNoCRD = errors.New("provider: the API server serves no clusters.cluster.x-k8s.io in v1beta2 or v1beta1: install Cluster API's CustomResourceDefinitions")

// clusterResource finds the version of Clusters that is served. It tries until
// it knows; false says that ctx ended first.
func (p *Provider) clusterResource(ctx context.Context) (schema.GroupVersionResource, bool) {
	wait := backoff.Backoff{First: time.Second}
	for {
		gvr, err := p.served(ctx)
		if err == nil {
			return gvr, true
		}
		if ctx.Err() != nil {
			return gvr, false
		}
		p.health.failed(err)
		p.failed(err)
		select {
		case <-ctx.Done():
			return gvr, false
		case <-time.After(wait.Next(0)):
		}
	}
}

func (p *Provider) served(ctx context.Context) (schema.GroupVersionResource, error) {
	for _, version := range clusterVersions {
		gvr := schema.GroupVersionResource{Group: Group, Version: version, Resource: "clusters"}
		list, err := p.resources(ctx, gvr.GroupVersion())
		if err != nil {
			return gvr, err
		}
		if slices.ContainsFunc(list, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }) {
			return gvr, nil
		}
	}
	return schema.GroupVersionResource{}, ErrNoCRD
}

// resources asks what is served of a group and version: nothing, and no error,
// if it is unknown.
func (p *Provider) resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	// Of the discovery client's own methods none takes a context.
	var list metav1.APIResourceList
	err := p.kube.Discovery().RESTClient().Get().AbsPath("/apis/" + gv.String()).Do(ctx).Into(&list)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("provider: what the API server serves of %s: %w", gv, err)
	}
	return list.APIResources, nil
}

// conditionsPath is where a Cluster has its conditions of type metav1.Condition.
func conditionsPath(apiVersion string) []string {
	if strings.HasSuffix(apiVersion, "/v1beta1") {
		return []string{"status", "v1beta2", "conditions"}
	}
	return []string{"status", "conditions"}
}
