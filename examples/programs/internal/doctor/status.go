package doctor

import (
	"cmp"

	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// The statuses of doctor, as its help has them. They don't change their meaning; 2 is a mistake on
// the command line, as everywhere.
const (
	statusFailed = 1 // the kubeconfig can't be used
	statusTunnel = 5
)

var phaseStatuses = map[probe.Phase]int{
	probe.PhaseDNS:       3,
	probe.PhaseTCP:       3,
	probe.PhaseProxyTLS:  3,
	probe.PhaseProxyAuth: 4,
	probe.PhaseConnect:   3,
	probe.PhaseTLS:       6,
	probe.PhaseAuth:      7,
	probe.PhaseReady:     8,
}

// statusOf returns the status to exit with.
func statusOf(r probe.Report) int {
	failed := r.Failed()
	switch {
	case r.OK():
		return 0
	case failed == nil:
		return statusFailed
	case failed.Tunnel:
		return statusTunnel
	}
	return cmp.Or(phaseStatuses[failed.Phase], statusFailed)
}
