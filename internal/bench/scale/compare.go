package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// compareArgs say how much to compare.
type compareArgs struct {
	Dials  int   // of each kind
	Rounds int   // of transfers, of each kind
	Bytes  int64 // of a transfer
}

// A comparison is of what goes to an agent that is connected here with what
// another replica forwards.
type comparison struct {
	Local     []time.Duration // dials
	First     []time.Duration // forwarded; the replicas are asked before
	Forwarded []time.Duration // to a cluster again, of which it is known where it is
	// Bytes a second over one stream.
	LocalDown, ForwardedDown, LocalUp, ForwardedUp []float64
}

var errOneSided = errors.New("no replica has some of the agents, and not all")

// compare takes turns, so that what the machine does besides falls on both. It
// is nil where no cluster is here, or none elsewhere.
func (r *replica) compare(ctx context.Context, args compareArgs) (*comparison, error) {
	local, remote := r.split()
	if len(local) == 0 || len(remote) == 0 {
		return nil, nil
	}
	c := &comparison{}
	for i := range args.Dials {
		here, there := local[i%len(local)], remote[i%len(remote)]
		first := &c.First
		if i >= len(remote) {
			first = nil
		}
		for _, d := range []struct {
			place
			to *[]time.Duration
		}{{here, nil}, {here, &c.Local}, {there, first}, {there, &c.Forwarded}} {
			if err := r.timeDial(ctx, d.place, d.to); err != nil {
				return nil, err
			}
		}
	}
	for i := range args.Rounds {
		here, there := local[i%len(local)], remote[i%len(remote)]
		for _, t := range []struct {
			place
			up bool
			to *[]float64
		}{{here, false, &c.LocalDown}, {there, false, &c.ForwardedDown}, {here, true, &c.LocalUp}, {there, true, &c.ForwardedUp}} {
			if err := r.timeTransfer(ctx, t.place, t.up, args.Bytes, t.to); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// split returns the places whose agents are connected here, and the others.
func (r *replica) split() (local, remote []place) {
	here := map[string]bool{}
	for _, c := range r.server.Status().Clusters {
		here[c.Cluster] = slices.ContainsFunc(c.Sessions, func(s tunnel.SessionInfo) bool { return !s.Draining })
	}
	for _, p := range r.places {
		if here[p.Cluster] {
			local = append(local, p)
		} else {
			remote = append(remote, p)
		}
	}
	return local, remote
}

func (r *replica) timeDial(ctx context.Context, p place, to *[]time.Duration) error {
	began := time.Now()
	conn, err := r.server.Dialer(p.Cluster).DialContext(ctx, "tcp", p.Target)
	if err != nil {
		return err
	}
	if to != nil {
		*to = append(*to, time.Since(began))
	}
	defer conn.Close()
	return echo(conn)
}

func (r *replica) timeTransfer(ctx context.Context, p place, up bool, size int64, to *[]float64) error {
	conn, err := r.server.Dialer(p.Cluster).DialContext(ctx, "tcp", p.Target)
	if err != nil {
		return err
	}
	defer conn.Close()
	rate, err := transfer(conn, up, size)
	*to = append(*to, rate)
	return err
}
