package provider

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ask starts the probes that don't run yet. Each queues its Cluster when it is
// done: no worker waits for one.
func (r *run) ask(ctx context.Context, cluster Cluster, candidates []Candidate) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	for _, candidate := range candidates {
		if r.ledger.fly(key, candidate.Key) {
			r.probes.Go(func() {
				r.try(ctx, cluster, candidate)
				r.queue.Add(key)
			})
		}
	}
}

// try probes once there is room.
func (r *run) try(ctx context.Context, cluster Cluster, candidate Candidate) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // of two cases that are ready, select takes either
		r.ledger.land(key, cluster.UID, candidate.Key, nil, time.Time{})
		return
	}
	limit, cancel := context.WithTimeout(ctx, cmp.Or(r.opts.ProbeTimeout, defaultProbeTimeout))
	defer cancel()
	began := time.Now()
	report := r.opts.probe()(limit, cluster, candidate.Config)
	now := time.Now()
	if ctx.Err() != nil { // it says nothing of the Cluster
		r.ledger.land(key, cluster.UID, candidate.Key, nil, now)
		return
	}
	// First, so that nobody hears of what came of it before.
	if probed := r.opts.Hooks.Probed; probed != nil {
		probed(key, now.Sub(began), report)
	}
	r.ledger.land(key, cluster.UID, candidate.Key, &report, now)
}
