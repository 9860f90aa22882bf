package provider

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/kubeconfig"
)

// RestoreRoute is for a webhook that changes Secrets at admission: somebody
// replaces old, the stored Secret, with written. If written has lost the accepted
// route, RestoreRoute returns the kubeconfig to store instead, and true. So the
// route is never away, not even until the provider writes it again.
//
// Only the route is old's: server, proxy-url, tls-server-name and our extension, by
// the rules that [Plan] has for a lost route. Credentials, CA and all else are written's.
//
// There is nothing to do, and the result is false, if
//
//   - one of the Secrets is not managed by the provider of config.Name: the Secret is
//     adopted or handed back, or old is nil. A Secret that Cluster API creates anew
//     has no record of a route;
//   - the record of the accepted route changes: that is the provider's own write, and
//     its kubeconfig has the new route already;
//   - the kubeconfig has the accepted route, or can't be read.
//
// It reads its arguments only, and is safe for concurrent use. It knows nothing of
// the Cluster: whoever wants to change the route by hand sets [AnnotationMode] to off first.
func RestoreRoute(old, written *corev1.Secret, config Config) ([]byte, bool) {
	name := config.providerName()
	if managerOf(old) != name || managerOf(written) != name || !bytes.Equal(old.Data[DataApplied], written.Data[DataApplied]) {
		return nil, false
	}
	value := written.Data[kubeconfig.SecretKey]
	base, err := parseDocument(value)
	if err != nil {
		return nil, false
	}
	p := &planner{base: base, records: readRecords(written)}
	restored, err := base.withRoute(p.acceptedRoute())
	if err != nil || bytes.Equal(restored, value) {
		return nil, false
	}
	return restored, true
}
