// Package clusterapi has what all readers of Cluster API's Clusters need.
package clusterapi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/causewayproject/causeway/internal/hostport"
)

// Group is the API group, and Kind the kind, of a Cluster.
const (
	Group = "cluster.x-k8s.io"
	Kind  = "Cluster"
)

// PausedAnnotation is Cluster API's, beside spec.paused. Its value says nothing.
const PausedAnnotation = Group + "/paused"

// LargeSuffix ends the mode that a cache puts in the place of what is too large to be kept: its beginning
// says what that is.
const LargeSuffix = "-of-more-than-16-KiB"

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

// ReadEndpoint returns host and port of an endpoint, {host, port} or a text. Either is empty if the endpoint
// does not have it yet. In the host's place there may be a URL, as CAPA has it for EKS; then the port
// need not be there. The host is not checked. It is returned along with an error that is about the rest.
func ReadEndpoint(value any) (host string, port int32, err error) {
	switch v := value.(type) {
	case nil:
		return "", 0, nil
	case string:
		host = v
	case map[string]any:
		host, _ = v["host"].(string)
		switch n := v["port"].(type) {
		case int64:
			if port = int32(n); int64(port) != n {
				port = -1
			}
		case float64:
			port = int32(n)
		}
		if !strings.Contains(host, "://") {
			return host, port, nil
		}
	default:
		return "", 0, errors.New("want an object with host and port")
	}
	u, err := hostport.ParseServer(host)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16) // it is one
	switch host = u.Hostname(); {
	case u.Scheme != "https":
		err = fmt.Errorf("has the scheme %s: want https", u.Scheme)
	case u.Path != "":
		err = errors.New("has a path, which an endpoint can't have")
	case port == 0:
		port = int32(n)
	case port != int32(n) && u.Port() != "443":
		err = errors.New("the host names another port than port does")
	}
	return host, port, err
}

// WritesValue reports whether the manager of fields, of a Secret, has written its key value: the kubeconfig.
func WritesValue(f metav1.ManagedFieldsEntry) bool {
	return f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.Raw, []byte(`"f:value"`))
}

// IsOlder reports whether resourceVersion a is before b. It is false if one of them is not
// a number. (apimachinery compares them since 0.35.)
func IsOlder(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}
