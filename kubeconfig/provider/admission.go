package provider

import (
	"bytes"
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/kubeconfig"
)

// RestoreRoute is for a webhook that changes kubeconfig Secrets at admission: somebody stores
// written, in place of old or, if old is nil, as a new Secret. memory is the Secret with its
// [RecordsName]; nil if there is none. If written has lost the accepted route, RestoreRoute returns
// the kubeconfig to store instead, and true. So the route is never away, not even until the
// provider writes it again.
//
// Only the route is changed: server, proxy-url, tls-server-name and our extension, by the rules that
// [Plan] has for a lost route. Credentials, CA and all else are written's. Whoever asks the webhook
// need not be the API server: of the proxy's credentials the answer has only those that old has.
// Without these the kubeconfig leads nowhere until the provider adds them.
//
// There is nothing to do, and the result is false, if
//
//   - the provider of config.Name manages neither, or hands the Secret back;
//   - it is the provider's own write: written has a newer route than old and memory;
//   - the kubeconfig has the accepted route, or can't be read.
//
// memory may be older than the provider's last write: then old's route counts. It reads its
// arguments only, and is safe for concurrent use. It knows nothing of the Cluster: whoever wants to
// change the route by hand sets [AnnotationMode] to off first.
func RestoreRoute(old, written, memory *corev1.Secret, config Config) ([]byte, bool) {
	name, r := config.providerName(), readRecords(old, memory)
	by := memoryManager(memory)
	if memory == nil && (managerOf(written) != "" || revisionOf(old) > 0) { // records of before, or a cache that is late
		by = managerOf(old)
	}
	applied := written.Data[DataApplied] // an earlier version's own write changes it
	if by != name || cmp.Or(managerOf(written), name) != name || revisionOf(written) > r.Revision ||
		len(applied) > 0 && (old == nil || !bytes.Equal(old.Data[DataApplied], applied)) {
		return nil, false
	}
	base, err := parseDocument(written.Data[kubeconfig.SecretKey])
	if err != nil {
		return nil, false
	}
	var had route
	if old != nil {
		if before, err := parseDocument(old.Data[kubeconfig.SecretKey]); err == nil {
			had = before.current
		}
	}
	if had.Server != "" && revisionOf(old) > decodeRecords(memory).Revision {
		late := had
		if had.ProxyURL == "" && had.Server != base.current.Server {
			late.Natural = base.current.Server
		}
		r.applied = &late
	}
	restored := (&decider{state: &state{}, decision: decision{records: r}, base: base}).acceptedRoute()
	if restored.sameEntry(base.current) {
		return nil, false
	}
	if restored.ProxyURL != had.ProxyURL {
		restored = restored.withoutUser()
	}
	if !bytes.Equal(restored.Extension, had.Extension) {
		restored.Extension = nil
	}
	value, err := base.withRoute(restored)
	if err != nil || bytes.Equal(value, base.bytes) {
		return nil, false
	}
	return value, true
}
