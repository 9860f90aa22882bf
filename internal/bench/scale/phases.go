package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"
)

// enrolment is how long agents took from nothing to two sessions each.
type enrolment struct {
	Agents, New int
	Took        time.Duration
}

// idle is the cost of idle agents.
type idle struct {
	Agents, Sessions      int
	ServerSide, AgentSide side
}

var sideNames = [2]string{"replicas", "agents"}

func (i *idle) bothSides() [2]side { return [2]side{i.ServerSide, i.AgentSide} }

// side has the costs of one end's processes. Memory is per agent, without the first
// few, which also cost what a process needs once.
type side struct {
	Heap, RSS  float64 // bytes an agent: live heap and stacks; resident
	Goroutines float64 // an agent
	CPU        float64 // a fraction of one core, for all agents
}

// warmUp is how many agents there are before memory is measured.
const warmUp = 6

// run takes all phases in turn.
func (f *fleet) run(ctx context.Context, res *result) error {
	phases := []struct {
		name string
		run  func(context.Context, *result) error
	}{{"idle", f.idlePhase}, {"dials", f.dialPhase}, {"restart", f.restartPhase}, {"soak", f.soakPhase}}
	for _, p := range phases {
		if !f.phases[p.name] {
			continue
		}
		if err := f.sendPlaces(ctx); err != nil {
			return err
		}
		m, err := f.startMeter(ctx)
		if err == nil {
			err = p.run(ctx, res)
		}
		if err != nil {
			return fmt.Errorf("scale: %s: %w", p.name, err)
		}
		load, err := m.read(ctx)
		if err != nil {
			return fmt.Errorf("scale: %s: %w", p.name, err)
		}
		load.Phase = p.name
		res.Load = append(res.Load, load)
	}
	return nil
}

// idlePhase grows the fleet step by step, and takes memory and CPU at each.
func (f *fleet) idlePhase(ctx context.Context, res *result) error {
	if err := f.addAgents(ctx, warmUp); err != nil {
		return err
	}
	base, err := f.sumUsage(ctx, true)
	if err != nil {
		return err
	}
	for _, n := range f.Steps {
		began, before := time.Now(), len(f.places)
		if err := f.addAgents(ctx, n); err != nil {
			return err
		}
		e := enrolment{n, n - before, time.Since(began)}
		f.reportProgress("%d agents, %d of them new after %v", n, e.New, roundForTable(e.Took))
		res.Enrol = append(res.Enrol, e)
		step, err := f.measureIdle(ctx, base, n)
		if err != nil {
			return err
		}
		f.reportProgress("%s", step)
		res.Idle = append(res.Idle, *step)
	}
	return nil
}

func (f *fleet) measureIdle(ctx context.Context, base [2]usage, n int) (*idle, error) {
	if _, err := f.sumUsage(ctx, true); err != nil {
		return nil, err
	}
	stop := f.startProfiles(ctx, fmt.Sprintf("idle-%d", n))
	defer stop()
	began := time.Now()
	before, err := f.sumUsage(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := sleepContext(ctx, f.Idle); err != nil {
		return nil, err
	}
	after, err := f.sumUsage(ctx, false)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	stop()
	tidy, err := f.sumUsage(ctx, true)
	if err != nil {
		return nil, err
	}
	f.writeHeapProfiles(ctx, fmt.Sprintf("idle-%d", n))
	c, err := f.countSessions(ctx)
	step := &idle{Agents: n}
	for _, sessions := range c.Sessions {
		step.Sessions += sessions
	}
	for i, s := range []*side{&step.ServerSide, &step.AgentSide} {
		more := tidy[i].minus(base[i])
		each := float64(n - warmUp)
		*s = side{float64(more.Heap) / each, float64(more.RSS) / each, float64(more.Goroutines) / each,
			(after[i].CPU - before[i].CPU).Seconds() / took.Seconds()}
	}
	return step, err
}

// leastDials are enough for some of them to be forwarded, even on a machine
// that has no time.
const leastDials = 60

// dialPhase dials by all replicas at once, to all clusters.
func (f *fleet) dialPhase(ctx context.Context, res *result) error {
	stop := f.startProfiles(ctx, "dials")
	defer stop()
	began := time.Now()
	if err := f.dialAt(ctx, f.Rate); err != nil {
		return err
	}
	if err := sleepContext(ctx, f.Dialling); err != nil {
		return err
	}
	var d dials
	if err := f.waitDials(ctx, &d, leastDials); err != nil {
		return err
	}
	if err := f.dialAt(ctx, 0); err != nil {
		return err
	}
	took := time.Since(began)
	rest, err := f.collectDials(ctx)
	d.add(rest)
	res.Dials = &dialling{Asked: f.Rate, dialCount: d.asCount(), P50: percentile(d.Took, 50), P99: percentile(d.Took, 99)}
	res.Dials.Rate = float64(res.Dials.Dials) / took.Seconds()
	f.reportProgress("%s", res.Dials)
	return err
}

// restartPhase restarts the replicas one by one, then kills one, then
// restarts all, then kills all. An agent whose session ends within a minute
// waits longer than the last time, so there is a rest in between: each step is to be
// measured by itself. Replicas that go one by one have no rest in between.
func (f *fleet) restartPhase(ctx context.Context, res *result) error {
	one := func(i int) []*server { return f.replicas[i : i+1] }
	for _, t := range []struct {
		what  string
		kill  bool
		rate  float64
		rest  time.Duration
		which []*server
	}{
		{"restart of one", false, f.RestartRate, f.Rest, one(0)},
		{"and the second", false, f.RestartRate, 0, one(1)},
		{"and the third", false, f.RestartRate, 0, one(2)},
		{"kill of one", true, f.RestartRate, f.Rest, one(0)},
		{"restart of all", false, 0, f.Rest, f.replicas},
		{"kill of all", true, 0, f.Rest, f.replicas},
	} {
		if err := sleepContext(ctx, t.rest); err != nil {
			return err
		}
		stop := func() {}
		if t.which[0] == f.replicas[1] { // so that the profiled one stays
			stop = f.startProfiles(ctx, "restart")
		}
		r, err := f.restartReplicas(ctx, t.what, t.kill, t.rate, t.which...)
		stop()
		if err != nil {
			return err
		}
		f.reportProgress("%s", r)
		res.Restarts = append(res.Restarts, r)
	}
	return nil
}

// soak is the result of kills at random.
type soak struct {
	Took          time.Duration
	Restarts      []*restart // the replicas'
	Kicked        int        // agents that ended and came back
	Dials         dialCount
	Before, After [2]usage // the replicas' and the agents'
}

// soakPhase restarts, kills and kicks at random, while all dial.
func (f *fleet) soakPhase(ctx context.Context, res *result) error {
	s := &soak{}
	began := time.Now()
	var err error
	if s.Before, err = f.sumUsage(ctx, true); err != nil {
		return err
	}
	var sum dials
	for time.Since(began) < f.Soak {
		if err := f.causeAccident(ctx, s); err != nil {
			return err
		}
		if err := f.dialAt(ctx, f.RestartRate); err != nil {
			return err
		}
		if err := sleepContext(ctx, f.Settle/2+time.Duration(rand.Int64N(int64(f.Settle)+1))); err != nil {
			return err
		}
		if err := f.waitDials(ctx, &sum, 1); err != nil {
			return err
		}
	}
	if err := f.dialAt(ctx, 0); err != nil {
		return err
	}
	d, err := f.collectDials(ctx)
	if err != nil {
		return err
	}
	sum.add(d)
	s.Dials, s.Took = sum.asCount(), time.Since(began)
	if err := f.waitSessions(ctx); err != nil {
		return err
	}
	s.After, err = f.sumUsage(ctx, true)
	res.Soak = s
	f.reportProgress("%s", s)
	return err
}

// causeAccident is something that may happen.
func (f *fleet) causeAccident(ctx context.Context, s *soak) error {
	which := f.replicas[rand.IntN(len(f.replicas)):][:1]
	what, kill, rate := "restart of one", false, f.RestartRate
	switch n := rand.IntN(10); {
	case n == 0:
		what, kill, rate, which = "kill of all", true, 0, f.replicas
	case n < 5:
		what, kill = "kill of one", true
	case n < 8:
		kicked := max(len(f.places)/100, 1)
		for _, a := range f.agents {
			if err := a.call(ctx, "kick", kicked/len(f.agents)+1, nil); err != nil {
				return err
			}
		}
		s.Kicked += (kicked/len(f.agents) + 1) * len(f.agents)
		return nil
	}
	r, err := f.restartReplicas(ctx, what, kill, rate, which...)
	if err == nil {
		f.reportProgress("%s", r)
		r.Curve = nil // too many to draw
		s.Restarts = append(s.Restarts, r)
	}
	return err
}

// startProfiles has the first replica and the first process of agents write CPU
// profiles, if they are wanted. The func that it returns may be called twice.
func (f *fleet) startProfiles(ctx context.Context, name string) (stop func()) {
	if f.profiles == "" {
		return func() {}
	}
	profiled := f.profiledProcesses()
	for who, p := range profiled {
		if err := p.call(ctx, "profile", filepath.Join(f.profiles, name+"-"+who+".pprof"), nil); err != nil {
			f.reportProgress("%v", err)
		}
	}
	return func() {
		for _, p := range profiled {
			p.call(ctx, "profile", "", nil)
		}
	}
}

// writeHeapProfiles has the same processes write profiles of their memory.
func (f *fleet) writeHeapProfiles(ctx context.Context, name string) {
	if f.profiles == "" {
		return
	}
	for who, p := range f.profiledProcesses() {
		if err := p.call(ctx, "heap", filepath.Join(f.profiles, name+"-"+who+"-heap.pprof"), nil); err != nil {
			f.reportProgress("%v", err)
		}
	}
}

func (f *fleet) profiledProcesses() map[string]*process {
	return map[string]*process{"replica": f.replicas[0].process, "agents": f.agents[0]}
}

func sleepContext(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
