package provider

import (
	"errors"
	"strings"

	"github.com/causewayproject/causeway/internal/controller"
)

// ErrNoCRD says that the API server serves no Clusters.
var ErrNoCRD = errors.New(packageName + controller.NoCRD)

// conditionsPath is where a Cluster has its conditions of type metav1.Condition.
func conditionsPath(apiVersion string) []string {
	if strings.HasSuffix(apiVersion, "/v1beta1") {
		return []string{"status", "v1beta2", "conditions"}
	}
	return []string{"status", "conditions"}
}
