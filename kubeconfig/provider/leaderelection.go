package provider

import (
	"errors"
	"time"

	"github.com/causewayproject/causeway/internal/controller"
)

// LeaderElection is by a Lease. client-go writes a line to its own log (klog)
// when the leader changes.
type LeaderElection struct {
	Namespace string // of the Lease. Required.
	Name      string // of the Lease. "kubeconfig-provider" if empty.
	Identity  string // of this process, unique. The host's name and a random number if empty.
	// Lease is how long one who is silent is still taken for the leader; Renew,
	// how long the leader tries to renew it before it stops; Retry, the time
	// between two attempts. 15, 10 and 2 seconds if 0.
	Lease, Renew, Retry time.Duration
}

// ErrLostLease is what Run returns when leadership was lost: another leads.
// Nothing was written after the lease could not be renewed.
var ErrLostLease = errors.New("provider: the lease of the leader election was lost")

func (o *Options) leaderElection() *controller.LeaderElection {
	return (*controller.LeaderElection)(o.LeaderElection)
}
