// Scale runs a fleet on one machine: thousands of agents, each with sessions
// with two of three replicas of the tunnel's server. It measures what they cost
// and how soon they are back. The README beside says how to read what it says.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

func main() {
	rig.Main(roleEnv, playRole, func(ctx context.Context) error {
		return runCommand(ctx, os.Args[1:], os.Stdout, os.Stderr)
	})
}

// A plan says what to do.
type plan struct {
	Steps       []int         // numbers of agents
	Idle        time.Duration // how long CPU time is measured at each
	Rate        float64       // dials a second
	Dialling    time.Duration // how long
	RestartRate float64       // dials a second while replicas come and go
	Settle      time.Duration // how long the dials go on when all are back
	Rest        time.Duration // before replicas go, for agents to forget what was before
	Soak        time.Duration
	Poll        time.Duration // how often agents are asked how they are: thousands have to think about it
	Backoff     time.Duration // FirstBackoff of the agents, and a quarter of MaxBackoff; zero: theirs
	Grace       time.Duration // the replicas'

	command  string // as it is to be repeated
	phases   map[string]bool
	out      string // folder; "": no files
	profiles string // folder; "": none are wanted
	progress io.Writer
}

// useShortTimes shortens the plan to some seconds.
func (p *plan) useShortTimes() {
	p.Steps, p.Idle = []int{8, 16}, 200*time.Millisecond
	p.Rate, p.Dialling = 50, time.Second
	p.RestartRate, p.Settle, p.Rest, p.Soak, p.Poll = 50, 200*time.Millisecond, 0, time.Second, 50*time.Millisecond
	p.Backoff, p.Grace = 200*time.Millisecond, 5*time.Second
}

const allPhases = "idle,dials,restart,soak"

// parseArgs reads the arguments.
func parseArgs(args []string) (*plan, error) {
	p := &plan{
		RestartRate: 200, Settle: 10 * time.Second, Rest: 65 * time.Second, Poll: 250 * time.Millisecond,
		phases: map[string]bool{}, progress: io.Discard,
	}
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	steps := f.String("agents", "10,100,1000,5000", "numbers of agents, with commas between, ascending; the last is that of all other phases")
	phases := f.String("phases", "idle,dials,restart", "phases, with commas between, of "+allPhases+"; idle starts the agents and is always done")
	f.DurationVar(&p.Idle, "idle", 30*time.Second, "how long CPU time is measured at each number of agents")
	f.Float64Var(&p.Rate, "rate", 1000, "dials a second in the phase of that name")
	f.DurationVar(&p.Dialling, "dialling", 30*time.Second, "how long")
	f.DurationVar(&p.Soak, "soak", 0, "restarts, kills and reconnections at random for so long: 30m, say")
	f.DurationVar(&p.Grace, "grace", 10*time.Second, "the replicas' Grace")
	f.StringVar(&p.out, "out", "", "folder for table.txt and result.json (default: only the table, on standard output)")
	f.StringVar(&p.profiles, "profiles", "", "folder for profiles of CPU and memory")
	brief := f.Bool("short", false, "some seconds, with few agents, to see that it works")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("scale: there is no argument %q", f.Arg(0))
	}
	var err error
	if p.Steps, err = parseSteps(*steps); err != nil {
		return nil, err
	}
	if *brief {
		p.useShortTimes()
		*phases = allPhases
	}
	if p.Soak > 0 {
		p.phases["soak"] = true
	}
	p.command = "go run ./scale"
	f.Visit(func(f *flag.Flag) {
		if f.Name != "out" && f.Name != "profiles" { // they change nothing
			p.command += fmt.Sprintf(" -%s=%s", f.Name, f.Value)
		}
	})
	for name := range strings.SplitSeq("idle,"+*phases, ",") {
		if !slices.Contains(strings.Split(allPhases, ","), name) {
			return nil, fmt.Errorf("scale: there is no phase %q", name)
		}
		p.phases[name] = true
	}
	return p, nil
}

func parseSteps(s string) (steps []int, err error) {
	last := warmUp
	for text := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= last {
			return nil, fmt.Errorf("scale: numbers of agents %q: want some above %d, ascending", s, warmUp)
		}
		last = n
		steps = append(steps, n)
	}
	return steps, nil
}

// runCommand runs the program with its arguments.
func runCommand(ctx context.Context, args []string, out, progress io.Writer) error {
	p, err := parseArgs(args)
	if err != nil {
		return err
	}
	p.progress = progress
	res, err := p.runPhases(ctx)
	if res == nil {
		return err
	}
	fmt.Fprint(out, res.table())
	if p.out == "" {
		return err
	}
	return errors.Join(err, res.write(p.out))
}

// runPhases runs the phases with processes of their own, which have ended when it
// returns. With the error of a phase, the result is what there was before.
func (p *plan) runPhases(ctx context.Context) (*result, error) {
	if p.profiles != "" {
		if err := os.MkdirAll(p.profiles, 0o755); err != nil {
			return nil, fmt.Errorf("scale: %w", err)
		}
	}
	began := time.Now()
	f, err := newFleet(ctx, p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	res := &result{}
	err = f.run(ctx, res)
	res.Conditions = conditions{p.command, rig.ConditionsSince(began)}
	return res, err
}

func (p *plan) reportProgress(format string, args ...any) {
	fmt.Fprintf(p.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
