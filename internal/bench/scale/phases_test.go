package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// The limits that the figures should keep.
const (
	limitedAgents = 5000 // for what agents cost: fewer of them cost more each

	limitMemory  = 45 << 10 // bytes of heap and stacks of an idle agent, a side
	limitGrowth  = 1.2      // memory of an agent among the most, to that of one among a hundred
	limitCPU     = 0.1      // cores, for 5,000 idle agents
	limitBackOne = 30 * time.Second
	limitBackAll = 60 * time.Second
	limitStorm   = 90 * time.Second // the same for 20,000 agents
	limitP99     = time.Second      // of the dials while agents come back
)

// warmUp is how many agents there are before memory is measured.
const warmUp = 6

var sideNames = [2]string{"replicas", "agents"}

// side has the costs of one end's processes. Memory is per agent, without the first
// few, which also cost what a process needs once.
type side struct {
	heap, rss float64 // bytes an agent: live heap and stacks; resident
	cpu       float64 // a fraction of one core, for all agents
}

func (s side) String() string {
	return fmt.Sprintf("%.1f KiB heap and stacks, %.1f KiB resident an agent, %.1f%% CPU", s.heap/1024, s.rss/1024, 100*s.cpu)
}

// idlePhase grows the fleet step by step, and takes memory and CPU at each.
func (f *fleet) idlePhase() {
	f.addAgents(warmUp)
	base := f.sumUsage(true)
	var hundred, last [2]side
	for _, n := range f.steps {
		began, before := time.Now(), len(f.places)
		f.addAgents(n)
		f.Logf("%d agents, %d of them new after %v", n, n-before, roundForLog(time.Since(began)))
		f.sumUsage(true)
		last = f.measureIdle(base, n)
		for i, s := range last {
			f.Logf("%d idle agents, %s: %s", n, sideNames[i], s)
		}
		if n == 100 {
			hundred = last
		}
	}
	for i, s := range last {
		if f.limits && len(f.places) < limitedAgents {
			continue
		}
		f.check(s.heap <= limitMemory, "memory of an idle agent, "+sideNames[i], "45 KiB", s.String())
		f.check(s.cpu < limitCPU*max(1, float64(len(f.places))/limitedAgents), "CPU of the idle agents, "+sideNames[i], "10% of a core for 5,000", s.String())
		if few := hundred[i]; few.heap > 0 {
			heap, rss := s.heap/few.heap, s.rss/few.rss
			f.check(max(heap, rss) <= limitGrowth, "memory of an agent beside that among 100, "+sideNames[i], "at most 120%",
				fmt.Sprintf("heap and stacks %.1f%%, resident %.1f%%", 100*heap, 100*rss))
		}
	}
}

func (f *fleet) measureIdle(base [2]rig.Usage, n int) (sides [2]side) {
	stop := f.startProfiles(fmt.Sprintf("idle-%d", n))
	began := time.Now()
	before := f.sumUsage(false)
	f.sleep(f.idle)
	after := f.sumUsage(false)
	took := time.Since(began)
	stop()
	tidy := f.sumUsage(true)
	f.writeHeapProfiles(fmt.Sprintf("idle-%d", n))
	each := float64(n - warmUp)
	for i := range sides {
		sides[i] = side{
			float64(tidy[i].Heap-base[i].Heap) / each, float64(tidy[i].RSS-base[i].RSS) / each,
			(after[i].CPU - before[i].CPU).Seconds() / took.Seconds(),
		}
	}
	return sides
}

// leastDials are enough for some of them to be forwarded, even on a machine
// that has no time.
const leastDials = 60

// dialPhase dials by all replicas at once, to all clusters.
func (f *fleet) dialPhase() {
	stop := f.startProfiles("dials")
	defer stop()
	began := time.Now()
	f.dialAt(f.rate)
	f.sleep(f.dialling)
	var d Dials
	f.waitDials(&d, leastDials)
	f.dialAt(0)
	took := time.Since(began)
	d.add(f.collectDials())
	got := fmt.Sprintf("%.0f a second (%.0f asked for): %v", float64(d.count())/took.Seconds(), f.rate, d)
	f.check(len(d.Failed) == 0, "dials", "none fails", got)
	if len(d.Took) == 0 || d.Forwarded == 0 {
		f.Errorf("got %s, want dials, some of them forwarded", got)
	}
}

// restartPhase restarts the replicas one by one, then kills one, then
// restarts all, then kills all. An agent whose session ends within a minute
// waits longer than the last time, so there is a rest in between: each step is to be
// measured by itself. Replicas that go one by one have no rest in between.
func (f *fleet) restartPhase() {
	one := func(i int) []*server { return f.replicas[i : i+1] }
	for _, step := range []struct {
		what  string
		kill  bool
		rate  float64
		rest  time.Duration
		which []*server
	}{
		{"restart of one", false, f.restartRate, f.rest, one(0)},
		{"and the second", false, f.restartRate, 0, one(1)},
		{"and the third", false, f.restartRate, 0, one(2)},
		{"kill of one", true, f.restartRate, f.rest, one(0)},
		{"restart of all", false, f.restartRate, f.rest, f.replicas},
		{"kill of all", true, f.restartRate, f.rest, f.replicas},
	} {
		f.sleep(step.rest)
		stop := func() {}
		if step.which[0] == f.replicas[1] { // so that the profiled one stays
			stop = f.startProfiles("restart")
		}
		r := f.restartReplicas(step.what, step.kill, step.rate, step.which...)
		stop()
		limit := limitBackOne
		all := len(step.which) == len(f.replicas)
		switch {
		case all && len(f.places) > 10_000:
			limit = limitStorm
		case all:
			limit = limitBackAll
		}
		f.check(r.two <= limit, step.what+", all with two sessions", limit.String(), roundForLog(r.two).String())
		if all { // dials to clusters whose agent is not back fail
			p99 := rig.Percentile(r.dials.Took, 99)
			f.check(p99 < limitP99, step.what+", p99 of the dials that find an agent", limitP99.String(), r.dials.String())
		} else if !step.kill && r.dials.count() > 0 {
			f.check(len(r.dials.Failed) == 0, step.what+", dials", "none fails", r.dials.String())
		}
	}
}

// soakPhase restarts, kills and kicks at random, while all dial.
func (f *fleet) soakPhase() {
	began, restarts, kicked := time.Now(), 0, 0
	before := f.sumUsage(true)
	var sum Dials
	for time.Since(began) < f.soak {
		if r, k := f.causeAccident(); r {
			restarts++
		} else {
			kicked += k
		}
		f.dialAt(f.restartRate)
		f.sleep(f.settle/2 + time.Duration(rand.Int64N(int64(f.settle)+1)))
		f.waitDials(&sum, 1)
	}
	f.dialAt(0)
	sum.add(f.collectDials())
	took := time.Since(began)
	f.waitSessions()
	f.Logf("%v, %d restarts of replicas, %d of agents; %v", roundForLog(took), restarts, kicked, sum)
	for i, after := range f.sumUsage(true) {
		f.Logf("%s, before and after: heap %.1f and %.1f MiB, %d and %d goroutines", sideNames[i],
			float64(before[i].Heap)/(1<<20), float64(after.Heap)/(1<<20), before[i].Goroutines, after.Goroutines)
	}
}

// causeAccident is something that may happen: replicas go, or else some agents, and
// come back.
func (f *fleet) causeAccident() (restarted bool, kicked int) {
	one := f.replicas[rand.IntN(len(f.replicas))]
	switch n := rand.IntN(10); {
	case n == 0:
		f.restartReplicas("kill of all", true, 0, f.replicas...)
	case n < 5:
		f.restartReplicas("kill of one", true, f.restartRate, one)
	case n < 8:
		each := max(len(f.places)/100, 1)/len(f.agents) + 1
		f.callAgents("Kick", each)
		return false, each * len(f.agents)
	default:
		f.restartReplicas("restart of one", false, f.restartRate, one)
	}
	return true, 0
}

// startProfiles has the first replica and the first process of agents write CPU
// profiles, if they are wanted.
func (f *fleet) startProfiles(name string) (stop func()) {
	profiled := f.profiledProcesses()
	for who, p := range profiled {
		f.call(p, "Profile", filepath.Join(*profiles, name+"-"+who+".pprof"), nil)
	}
	return func() {
		for _, p := range profiled {
			p.Call(context.Background(), "Profile", "", nil)
		}
	}
}

// writeHeapProfiles has the same processes write profiles of their memory.
func (f *fleet) writeHeapProfiles(name string) {
	for who, p := range f.profiledProcesses() {
		f.call(p, "HeapProfile", filepath.Join(*profiles, name+"-"+who+"-heap.pprof"), nil)
	}
}

// profiledProcesses is empty if no profiles are wanted.
func (f *fleet) profiledProcesses() map[string]*rig.Child {
	if *profiles == "" {
		return nil
	}
	return map[string]*rig.Child{"replica": f.replicas[0].process, "agents": f.agents[0]}
}
