package controller

import (
	"cmp"
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

// LeaderElection is by a Lease. The packages have a type of their own with the
// same fields, which is converted to this one.
type LeaderElection struct {
	Namespace           string        // the Lease's
	Name                string        // the Lease's. Controller.Program if empty.
	Identity            string        // this process
	Lease, Renew, Retry time.Duration // 15, 10 and 2 seconds if 0
}

// Check returns an error that starts with name. A nil LeaderElection is good.
func (l *LeaderElection) Check(name string) error {
	switch {
	case l == nil:
		return nil
	case l.Namespace == "":
		return errors.New(name + ": Options.LeaderElection.Namespace is required")
	}
	// As client-go's elector has it, which would say so once the caches are filled.
	lease, renew, retry := l.durations()
	if lease <= renew || float64(renew) <= leaderelection.JitterFactor*float64(retry) || retry < 1 {
		return fmt.Errorf("%s: Options.LeaderElection: got Lease %v, Renew %v and Retry %v: want Lease longer than Renew, and that longer than 1.2 Retry",
			name, lease, renew, retry)
	}
	return nil
}

func (l *LeaderElection) durations() (lease, renew, retry time.Duration) {
	return cmp.Or(l.Lease, 15*time.Second), cmp.Or(l.Renew, 10*time.Second), cmp.Or(l.Retry, 2*time.Second)
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

// Instance names this process in Events. l may be nil.
func (l *LeaderElection) Instance(program string) string {
	if l != nil && l.Identity != "" {
		return l.Identity
	}
	return program + "-" + hostname()
}

// Lead calls work once this process is the leader, and returns when work has
// returned: lost, if another process has become the leader. work's context ends with
// leadership. Without l, it just calls work.
func (c *Controller) Lead(ctx context.Context, l *LeaderElection, lost error, work func(context.Context)) error {
	if l == nil {
		work(ctx)
		return nil
	}
	leading := make(chan context.Context, 1)
	elector, err := c.newElector(l, leading)
	if err != nil {
		return fmt.Errorf("%s: Options.LeaderElection: %w", c.Name, err)
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
		return lost
	}
	return nil
}

// newElector sends the context of each term to leading.
func (c *Controller) newElector(l *LeaderElection, leading chan<- context.Context) (*leaderelection.LeaderElector, error) {
	name := cmp.Or(l.Name, c.Program)
	lease, renew, retry := l.durations()
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: name},
			Client:     c.Kube.CoordinationV1(),
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
		Name: name,
	})
}
