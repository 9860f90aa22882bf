package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A restart is what happened when replicas went and came back.
type restart struct {
	What     string
	Replicas int
	Killed   bool          // without notice; else they drained
	Left     time.Duration // until their processes had ended
	Back     time.Duration // until all were ready again
	One      time.Duration // until each agent had a session again with a replica that takes streams
	Two      time.Duration // and sessions with two
	Least    int           // how many agents had a session when the fewest had
	Dials    dialCount
	Curve    []point // how many agents had two sessions
	Shares   []int   // sessions of each replica at the end
	Load     machineLoad
}

type point struct {
	At       time.Duration
	One, Two int
}

// dialCount are dials in numbers.
type dialCount struct {
	Dials, Forwarded int
	Failed           map[string]int `json:",omitempty"`
	Examples         []string       `json:",omitempty"`
}

func (d dials) asCount() dialCount {
	return dialCount{len(d.Took) + d.failed(), d.Forwarded, d.Failed, d.Examples}
}

// restartReplicas ends replicas, all at once, and starts them again, while the others
// dial at a rate.
func (f *fleet) restartReplicas(ctx context.Context, what string, kill bool, rate float64, which ...*server) (*restart, error) {
	r := &restart{What: what, Replicas: len(which), Killed: kill, Least: len(f.places)}
	if _, err := f.collectDials(ctx); err != nil { // what there was before
		return nil, err
	}
	m, err := f.startMeter(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.dialAt(ctx, rate); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := f.removeFromBalancer(ctx, which); err != nil {
		return nil, err
	}
	if _, err := f.checkSessions(ctx, began, r); err != nil { // before anything can come back
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watched sync.WaitGroup
	var watchErr error
	watched.Go(func() {
		watchErr = f.pollUntil(watching, func() (bool, error) { return f.checkSessions(watching, began, r) })
	})
	sum, err := f.replaceReplicas(ctx, began, kill, rate, r, which)
	if err != nil {
		stop()
	}
	watched.Wait()
	if err == nil {
		err = watchErr
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if r.Load, err = m.read(ctx); err != nil {
		return nil, err
	}
	r.Load.Phase = what
	if err := sleepContext(ctx, f.Settle); err != nil { // the dials go on
		return nil, err
	}
	return r, f.endRestart(ctx, r, sum)
}

// removeFromBalancer takes replicas out of the balancer.
func (f *fleet) removeFromBalancer(ctx context.Context, which []*server) error {
	for _, s := range which {
		f.mu.Lock()
		f.gone = append(f.gone, s.name)
		f.mu.Unlock()
		if err := f.setReady(ctx, s, false); err != nil {
			return err
		}
	}
	return nil
}

// replaceReplicas ends replicas and starts them again, and returns the results of the
// dials by replicas that drained.
func (f *fleet) replaceReplicas(ctx context.Context, began time.Time, kill bool, rate float64, r *restart, which []*server) (dials, error) {
	sum, err := f.stopReplicas(ctx, kill, rate, which)
	if err != nil {
		return sum, err
	}
	r.Left = time.Since(began)
	for _, s := range which {
		if err := f.startReplica(ctx, s); err != nil {
			return sum, err
		}
	}
	for _, s := range which {
		if err := f.waitJoined(ctx, s); err != nil {
			return sum, err
		}
	}
	r.Back = time.Since(began)
	return sum, f.dialAt(ctx, rate)
}

// stopReplicas ends replicas, whose dials others take over.
func (f *fleet) stopReplicas(ctx context.Context, kill bool, rate float64, which []*server) (sum dials, err error) {
	var wg sync.WaitGroup
	results, errs := make([]dials, len(which)), make([]error, len(which))
	for i, s := range which {
		wg.Go(func() {
			if kill {
				s.process.Kill()
				return
			}
			errs[i] = s.process.call(ctx, "leave", none{}, &results[i])
			s.process.stop()
		})
	}
	err = f.dialAt(ctx, rate)
	wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range which {
		s.process = nil
		sum.add(results[i])
		if err == nil {
			err = errs[i]
		}
	}
	return sum, err
}

// checkSessions counts the agents' sessions, and reports whether all have two.
func (f *fleet) checkSessions(ctx context.Context, began time.Time, r *restart) (bool, error) {
	c, err := f.countSessions(ctx)
	if err != nil {
		return false, err
	}
	at := time.Since(began)
	r.Curve = append(r.Curve, point{at, c.One, c.Two})
	if r.Least = min(r.Least, c.One); c.One < c.Agents {
		r.One = 0
	} else if r.One == 0 {
		r.One = at
	}
	r.Two = at
	return c.Two == c.Agents, nil
}

// endRestart ends the dials, and notes what is now.
func (f *fleet) endRestart(ctx context.Context, r *restart, sum dials) error {
	if r.Replicas < len(f.replicas) {
		if err := f.waitDials(ctx, &sum, 1); err != nil {
			return err
		}
	}
	if err := f.dialAt(ctx, 0); err != nil {
		return err
	}
	rest, err := f.collectDials(ctx)
	if err != nil {
		return err
	}
	sum.add(rest)
	r.Dials = sum.asCount()
	if err := f.waitSessions(ctx); err != nil {
		return err
	}
	c, err := f.countSessions(ctx)
	for _, s := range f.replicas {
		r.Shares = append(r.Shares, c.Sessions[s.name])
	}
	return err
}
