// Package scale runs a fleet on one machine: thousands of agents, each with sessions
// with two of three replicas of the tunnel's server. It measures what they cost
// and how soon they are back. The README says how to read what it says.
package scale

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

var (
	agentsFlag = flag.String("agents", "", "numbers of agents, with commas between, ascending; the last is that of all phases (default: 8 and 16 for some seconds, to see that it works, without the limits)")
	soakFlag   = flag.Duration("soak", 0, "restarts, kills and reconnections at random for so long: 30m, say")
	profiles   = flag.String("profiles", "", "folder for profiles of CPU and memory")
)

// closeTimeout is how long a role may take to end.
const closeTimeout = 10 * time.Second

func TestMain(m *testing.M) {
	rig.Play(map[string]io.Closer{"replica": &replica{}, "agents": &agentsRole{}}, closeTimeout)
	goleak.VerifyTestMain(m)
}

// A plan says what to do.
type plan struct {
	limits      bool          // figures that miss theirs are failures
	replicas    int           // how many: three, or more if a process may not open as many files as it would have sessions
	counted     bool          // the bytes between processes
	steps       []int         // numbers of agents
	idle        time.Duration // how long CPU time is measured at each
	rate        float64       // dials a second
	dialling    time.Duration // how long
	restartRate float64       // dials a second while replicas come and go
	settle      time.Duration // how long the dials go on when all are back
	rest        time.Duration // before replicas go, for agents to forget what was before
	soak        time.Duration
	poll        time.Duration // how often agents are asked how they are: thousands have to think about it
	backoff     time.Duration // FirstBackoff of the agents, and a quarter of MaxBackoff; zero: theirs
	grace       time.Duration // the replicas'
}

var (
	full = plan{
		limits: true, replicas: 3, idle: 30 * time.Second, rate: 1000, dialling: 30 * time.Second,
		restartRate: 200, settle: 10 * time.Second, rest: 65 * time.Second, poll: 250 * time.Millisecond, grace: 10 * time.Second,
	}
	short = plan{
		replicas: 3, steps: []int{8, 16}, idle: 200 * time.Millisecond, rate: 50, dialling: time.Second,
		restartRate: 50, settle: 200 * time.Millisecond, soak: time.Second, poll: 50 * time.Millisecond,
		backoff: 200 * time.Millisecond, grace: 5 * time.Second,
	}
)

func newPlan(agents string, soak time.Duration) (plan, error) {
	if agents == "" {
		return short, nil
	}
	p := full
	p.soak = soak
	last := warmUp
	for text := range strings.SplitSeq(agents, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= last {
			return p, fmt.Errorf("numbers of agents %q: want some above %d, ascending", agents, warmUp)
		}
		last = n
		p.steps = append(p.steps, n)
	}
	if last > 8000 {
		p.replicas = 4
	}
	return p, nil
}

func TestPlan(t *testing.T) {
	for agents, want := range map[string][]int{"": {8, 16}, "10,100": {10, 100}, "6": nil, "10,10": nil, "10,": nil, "x": nil} {
		p, err := newPlan(agents, 0)
		if (err != nil) != (want == nil) || want != nil && fmt.Sprint(p.steps) != fmt.Sprint(want) {
			t.Errorf("%q: got %v, error %v; want %v", agents, p.steps, err, want)
		}
	}
}

// TestFleet does the phases that -run names: TestFleet/restart, say. The agents of
// all of them are started before.
func TestFleet(t *testing.T) {
	p, err := newPlan(*agentsFlag, *soakFlag)
	if err != nil {
		t.Fatal(err)
	}
	if *profiles != "" {
		if err := os.MkdirAll(*profiles, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d cores, %s", runtime.NumCPU(), runtime.Version())
	f := newFleet(t, p)
	m := f.startMeter()
	f.idlePhase()
	f.Logf("idle: %s", m.read())
	f.sendPlaces()
	f.runPhase(t, "dials", f.dialPhase)
	f.runPhase(t, "restart", f.restartPhase)
	if p.soak > 0 {
		f.runPhase(t, "soak", f.soakPhase)
	}
}

func (f *fleet) runPhase(t *testing.T, name string, phase func()) {
	ended := true
	t.Run(name, func(t *testing.T) {
		ended = false
		f.T = t
		m := f.startMeter()
		phase()
		f.Logf("%s", m.read())
		ended = true
	})
	if f.T = t; !ended {
		t.FailNow() // the next one would begin with half a fleet
	}
}

// check says whether a figure keeps its limit, and fails the test if it does not.
// The figures of a short run are for a machine that has time.
func (f *fleet) check(met bool, what, want, got string) {
	switch {
	case met:
		f.Logf("ok: %s: wanted %s, got %s", what, want, got)
	case f.limits:
		f.Errorf("MISSED: %s: wanted %s, got %s", what, want, got)
	default:
		f.Logf("missed: %s: wanted %s, got %s", what, want, got)
	}
}

func (f *fleet) sleep(d time.Duration) {
	ctx, cancel := context.WithTimeout(f.Context(), d)
	defer cancel()
	<-ctx.Done()
}
