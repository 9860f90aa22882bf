package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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

func (l *LeaderElection) check() error {
	switch {
	case l == nil:
		return nil
	case l.Namespace == "":
		return errors.New("provider: Options.LeaderElection.Namespace is required")
	}
	// As client-go's elector has it, which would say so once the caches are filled.
	lease, renew, retry := l.times()
	if lease <= renew || float64(renew) <= leaderelection.JitterFactor*float64(retry) || retry < 1 {
		return fmt.Errorf("provider: Options.LeaderElection: got Lease %v, Renew %v and Retry %v: want Lease longer than Renew, and that longer than 1.2 Retry",
			lease, renew, retry)
	}
	return nil
}

func (l *LeaderElection) times() (lease, renew, retry time.Duration) {
	return or(l.Lease, 15*time.Second), or(l.Renew, 10*time.Second), or(l.Retry, 2*time.Second)
}

func (l *LeaderElection) name() string {
	if l.Name != "" {
		return l.Name
	}
	return "kubeconfig-provider"
}

func (l *LeaderElection) identity() string {
	if l.Identity != "" {
		return l.Identity
	}
	return hostname() + "-" + rand.Text()
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// instance names this process in Events.
func (o *Options) instance() string {
	if l := o.LeaderElection; l != nil && l.Identity != "" {
		return l.Identity
	}
	return o.name() + "-" + hostname()
}

// lead calls work once this Provider is the leader, and returns when work has
// returned. Its context ends with leadership.
func (p *Provider) lead(ctx context.Context, work func(context.Context)) error {
	l := p.opts.LeaderElection
	if l == nil {
		work(ctx)
		return nil
	}
	leading := make(chan context.Context, 1)
	lease, renew, retry := l.times()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.name()},
			Client:     p.kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity()},
		},
		LeaseDuration: lease,
		RenewDeadline: renew,
		RetryPeriod:   retry,
		// Released when the work is over, and not when it is told to end.
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
		},
		Name: l.name(),
	})
	if err != nil {
		return fmt.Errorf("provider: Options.LeaderElection: %w", err)
	}
	elect, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(elect)
	}()
	defer func() {
		stop()
		<-ended
	}()
	select {
	case <-ctx.Done():
		return nil
	case term := <-leading:
		both, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(term, cancel)()
		work(both)
	}
	if ctx.Err() == nil {
		return ErrLostLease
	}
	return nil
}
