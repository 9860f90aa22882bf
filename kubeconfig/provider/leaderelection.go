package provider

import (
	"errors"
	"time"

	"github.com/causewayproject/causeway/internal/controller"
)

// LeaderElection is by a Lease. client-go writes a line to its own log (klog)
// when the leader changes.
type LeaderElection struct {
	Namespace string // The Lease's. Required.
	Name      string // The Lease's. "kubeconfig-provider" if empty.
	Identity  string // This process's, unique. The host's name and a random number if empty.
	// Lease is how long a silent leader still counts as the leader. Renew is how
	// long the leader tries to renew the Lease before it stops. Retry is the time
	// between two attempts. 15, 10 and 2 seconds if 0.
	Lease, Renew, Retry time.Duration
}

// ErrLostLease is returned by Run when another process took over the leadership.
// Nothing was written after the lease could not be renewed.
var ErrLostLease = errors.New("provider: the lease of the leader election was lost")

func (o *Options) leaderElection() *controller.LeaderElection {
	return (*controller.LeaderElection)(o.LeaderElection)
}
