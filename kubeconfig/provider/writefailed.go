package provider

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/causewayproject/causeway/kubeconfig"
)

// WriteFailed returns what to tell if the write of an Action failed with err: the
// condition that says so, and one Event unless the Cluster has that condition already.
// The Action that it returns writes no Secret. Only config.Name and Now are read.
//
// A conflict, and a Secret to update or delete that is gone, are no failures: the plan that
// follows sees the newer objects. A Secret to create that exists is one, unless the cache
// was only late: the caller looks for that.
func WriteFailed(cluster Cluster, failed Action, config Config, err error) Action {
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && failed.Create == nil {
		return Action{}
	}
	s := &state{cluster: cluster, config: config}
	name := cluster.Name + kubeconfigSuffix
	for _, secret := range []*corev1.Secret{failed.Records, failed.Create, failed.Update, failed.Delete} {
		if secret != nil {
			name = secret.Name
		}
	}
	v := notReady(ReasonWriteFailed, fmt.Sprintf("the Secret %s can't be written: %v. %s", name, err, writeAdvice(err)))
	a := s.render(decision{verdict: &v})
	a.Managed = failed.Managed
	return a
}

// writeAdvice says what to do about a write that failed.
func writeAdvice(err error) string {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "Give the provider the right to get, list, watch, create, update and delete Secrets there, or look at the admission policy that the message names"
	case apierrors.IsAlreadyExists(err):
		return "The Secret that is there lacks the label " + kubeconfig.ClusterNameLabel + ": set it, or delete the Secret"
	case apierrors.IsInvalid(err):
		return "If the Secret is immutable, delete it: it is made again, by the control plane or by the provider"
	}
	return "It is tried again, less and less often"
}
