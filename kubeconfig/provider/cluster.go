package provider

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Group is that of Cluster API's Clusters.
const Group = clusterapi.Group

// Cluster is what a plan needs of a Cluster, of cluster.x-k8s.io/v1beta2 or
// v1beta1.
type Cluster struct {
	Namespace, Name      string
	UID                  string
	APIVersion           string // for the owner reference
	Generation           int64  // metadata.generation; the condition's observedGeneration
	Annotations          map[string]string
	Paused               bool // spec.paused or the annotation
	Deleting             bool
	Endpoint             kubeconfig.Endpoint   // zero if not known yet
	MoreEndpoints        []kubeconfig.Endpoint // the infrastructure object's status.apiEndpoints, beyond Endpoint
	Infrastructure       string                // kind and name of the infrastructure object; empty without one
	HasControlPlane      bool                  // spec.controlPlaneRef
	HasTopology          bool                  // spec.topology: a ClusterClass makes its control plane
	Tunnel               bool                  // LabelTunnel is "true": only agents lead there
	NamespaceAnnotations map[string]string     // its Namespace's
	Condition            *metav1.Condition     // its ConditionRoute, unchanged; nil without one

	endpointErr error // why spec.controlPlaneEndpoint can't be used
}

// Secrets is what the API server holds for the Cluster. A nil one does not
// exist.
type Secrets struct {
	Kubeconfig *corev1.Secret // <cluster>-kubeconfig
	CA         *corev1.Secret // <cluster>-ca
	Secondary  *corev1.Secret // Settings.SecondaryName
	Route      *corev1.Secret // Settings.RouteSecret, if it has LabelRoute
	// Records and SecondaryRecords are what the provider remembers about Kubeconfig and Secondary: the
	// Secrets with their RecordsName.
	Records, SecondaryRecords *corev1.Secret
	// SoleUser says that Route is in the Cluster's namespace, and that no other Cluster's
	// Settings name it. Then a Secret made for an earlier version, which doesn't say what proxy
	// it is for, is still used, with the reason ReasonSecretUnbound. False is safe.
	SoleUser bool
	// Unlabelled are those, as namespace/name, that are nil here, and are there without the label by
	// which such Secrets are found. Conditions say so; nothing else depends on it.
	Unlabelled []string
}

// ReadCluster reads a Cluster of cluster.x-k8s.io/v1beta2 or v1beta1, and of its
// infrastructure object status.apiEndpoints: objects with host and port, or strings.
// The first of them is the Endpoint of a Cluster without spec.controlPlaneEndpoint.
// infrastructure may be nil. The caller adds the Namespace's annotations, once it has
// read the Namespace. Both objects are only read.
//
// The host may be a URL, as CAPA has it for EKS. An endpoint that can't be used is an error, such as one
// with a path. The Cluster returned with the error has the fields that could be read.
func ReadCluster(cluster, infrastructure *unstructured.Unstructured) (Cluster, error) {
	if cluster == nil || cluster.GroupVersionKind().Group != Group || cluster.GetKind() != "Cluster" {
		return Cluster{}, errors.New("provider: want a Cluster of " + Group)
	}
	o := cluster.Object
	ref, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "controlPlaneRef")
	reference, _ := ref.(map[string]any)
	c := Cluster{
		Namespace: cluster.GetNamespace(), Name: cluster.GetName(), UID: string(cluster.GetUID()),
		APIVersion: cluster.GetAPIVersion(), Annotations: cluster.GetAnnotations(),
		Paused: clusterapi.IsPaused(cluster), Deleting: cluster.GetDeletionTimestamp() != nil,
		Generation: cluster.GetGeneration(), HasControlPlane: len(reference) > 0, Condition: clusterapi.Condition(cluster, ConditionRoute),
		Tunnel: cluster.GetLabels()[LabelTunnel] == "true",
	}
	topology, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "topology")
	c.HasTopology = topology != nil
	value, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "controlPlaneEndpoint")
	endpoint, err := readEndpoint(value)
	if err != nil {
		c.endpointErr = fmt.Errorf("provider: spec.controlPlaneEndpoint: %w", err)
		return c, c.endpointErr
	}
	c.Endpoint = endpoint
	if infrastructure == nil {
		return c, nil
	}
	c.Infrastructure = infrastructure.GetKind() + " " + infrastructure.GetName()
	c.MoreEndpoints, err = readEndpoints(infrastructure.Object, endpoint)
	if c.Endpoint == (kubeconfig.Endpoint{}) && len(c.MoreEndpoints) > 0 {
		c.Endpoint, c.MoreEndpoints = c.MoreEndpoints[0], c.MoreEndpoints[1:]
	}
	return c, err
}

// ClusterFields returns the paths of a Cluster that [ReadCluster] reads beside its
// metadata (namespace, name, uid, generation, deletionTimestamp, annotations, the label
// [LabelTunnel]): a cache may drop all others. Of the conditions, only the [ConditionRoute] is read.
func ClusterFields() [][]string {
	return [][]string{
		{"spec", "paused"}, {"spec", "controlPlaneEndpoint"}, {"spec", "controlPlaneRef"},
		{"spec", "topology", "class"}, {"spec", "topology", "classRef"}, // v1beta1 and v1beta2
		{"status", "conditions"}, {"status", "v1beta2", "conditions"},
	}
}

// maxEndpoints is how many of status.apiEndpoints are read: each may be tried and probed.
const maxEndpoints = 64

// readEndpoints leaves out the first one, and repetitions.
func readEndpoints(object map[string]any, first kubeconfig.Endpoint) ([]kubeconfig.Endpoint, error) {
	value, _, _ := unstructured.NestedFieldNoCopy(object, "status", "apiEndpoints")
	list, _ := value.([]any)
	seen := map[kubeconfig.Endpoint]bool{{}: true, first: true}
	var (
		more []kubeconfig.Endpoint
		errs []error
	)
	if len(list) > maxEndpoints {
		errs = append(errs, fmt.Errorf("provider: status.apiEndpoints of the infrastructure object: it has more than %d, and only the first are used", maxEndpoints))
		list = list[:maxEndpoints]
	}
	for i, item := range list {
		e, err := readEndpoint(item)
		if err != nil {
			errs = append(errs, fmt.Errorf("provider: status.apiEndpoints[%d] of the infrastructure object: %w", i, err))
		} else if !seen[e] {
			seen[e] = true
			more = append(more, e)
		}
	}
	return more, errors.Join(errs...)
}

// readEndpoint takes {host, port} and a text. Nothing, and Cluster API's {host: "", port: 0}, are the
// zero Endpoint.
func readEndpoint(value any) (e kubeconfig.Endpoint, err error) {
	if e.Host, e.Port, err = clusterapi.ReadEndpoint(value); err != nil || e == (kubeconfig.Endpoint{}) {
		return e, err
	}
	switch err := field.CheckHost(e.Host); {
	case e.Host == "":
		return e, errors.New("the host is empty")
	case err != nil:
		return e, fmt.Errorf("the host %w", err)
	case e.Port < 1 || e.Port > 65535:
		return e, fmt.Errorf("the port is %d: want 1 to 65535", e.Port)
	}
	return e, nil
}

// parseServer takes host:port and https://host:port. It quotes nothing.
func parseServer(text string) (kubeconfig.Endpoint, error) {
	if text == "" {
		return kubeconfig.Endpoint{}, errors.New("is missing: want host:port or https://host:port")
	}
	return readEndpoint(text)
}

// serverAddress returns host:port of a kubeconfig's server, in one spelling; empty if the server is more
// than that.
func serverAddress(server string) string {
	e, err := parseServer(server)
	if err != nil {
		return ""
	}
	return strings.ToLower(e.String())
}

const kubeconfigSuffix = "-kubeconfig"

// serverURL is the URL of the Cluster's endpoint; empty without one.
func (c Cluster) serverURL() string {
	if c.Endpoint == (kubeconfig.Endpoint{}) {
		return ""
	}
	return "https://" + c.Endpoint.String()
}

func (c Cluster) ownerReference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: c.APIVersion, Kind: "Cluster", Name: c.Name, UID: types.UID(c.UID)}
}
