package propagate

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/noproxy"
)

// Cluster is what a plan needs of a Cluster, of cluster.x-k8s.io/v1beta2 or
// v1beta1.
type Cluster struct {
	Namespace, Name  string
	UID              types.UID
	APIVersion       string // for the owner reference
	Paused, Deleting bool
	// Facts are what is computed from. Layout and Extra are Plan's to set.
	Facts noproxy.Cluster
}

// ReadCluster reads of a Cluster of cluster.x-k8s.io/v1beta2 or v1beta1
// spec.clusterNetwork and the host of spec.controlPlaneEndpoint. The object is
// only read. The Cluster that is returned along with an error has what could be
// read.
func ReadCluster(cluster *unstructured.Unstructured) (Cluster, error) {
	if cluster == nil || cluster.GroupVersionKind().Group != clusterapi.Group || cluster.GetKind() != "Cluster" {
		return Cluster{}, errors.New("propagate: want a Cluster of " + clusterapi.Group)
	}
	c := Cluster{
		Namespace: cluster.GetNamespace(), Name: cluster.GetName(), UID: cluster.GetUID(), APIVersion: cluster.GetAPIVersion(),
		Paused: clusterapi.IsPaused(cluster), Deleting: cluster.GetDeletionTimestamp() != nil,
	}
	var errs []error
	list := func(path ...string) []string {
		l, _, err := unstructured.NestedStringSlice(cluster.Object, path...)
		errs = append(errs, err)
		return l
	}
	text := func(path ...string) string {
		s, _, err := unstructured.NestedString(cluster.Object, path...)
		errs = append(errs, err)
		return s
	}
	c.Facts.PodCIDRs = list("spec", "clusterNetwork", "pods", "cidrBlocks")
	c.Facts.ServiceCIDRs = list("spec", "clusterNetwork", "services", "cidrBlocks")
	c.Facts.ServiceDomain = text("spec", "clusterNetwork", "serviceDomain")
	endpoint, _, _ := unstructured.NestedFieldNoCopy(cluster.Object, "spec", "controlPlaneEndpoint")
	host, _, err := clusterapi.ReadEndpoint(endpoint)
	if host != "" { // only the rest of it may be wrong
		c.Facts.ControlPlaneHosts, err = []string{host}, nil
	}
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return c, fmt.Errorf("propagate: Cluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	return c, nil
}

// ownerReference is the one of what is written.
func (c Cluster) ownerReference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: c.APIVersion, Kind: "Cluster", Name: c.Name, UID: c.UID}
}

// firstNetwork returns "" if there are no networks.
func firstNetwork(networks []string) string {
	if len(networks) == 0 {
		return ""
	}
	return networks[0]
}
