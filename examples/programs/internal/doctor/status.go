package doctor

import "github.com/causewayproject/causeway/kubeconfig/probe"

// The statuses of doctor, by the phase that failed. They don't change their meaning; 2 is a
// mistake on the command line, as everywhere.
const (
	statusFailed    = 1 // the kubeconfig can't be used
	statusNetwork   = 3 // no connection to the proxy or the API server, or by the proxy
	statusLogin     = 4
	statusTunnel    = 5
	statusTLS       = 6
	statusForbidden = 7
	statusNotReady  = 8
)

var phaseStatuses = map[probe.Phase]int{
	probe.PhaseDNS:       statusNetwork,
	probe.PhaseTCP:       statusNetwork,
	probe.PhaseProxyTLS:  statusNetwork,
	probe.PhaseProxyAuth: statusLogin,
	probe.PhaseConnect:   statusNetwork,
	probe.PhaseTLS:       statusTLS,
	probe.PhaseAuth:      statusForbidden,
	probe.PhaseReady:     statusNotReady,
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
	if status := phaseStatuses[failed.Phase]; status > 0 {
		return status
	}
	return statusFailed
}
