// Bench compares tunnels: the same streams from a client through a server and
// an agent to a target, each a process of its own on this machine. The README
// says how to run it and how to read what it says.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

func main() {
	rig.Main(roleEnv, playRole, func(ctx context.Context) error { return runCommand(ctx, os.Args[1:]) })
}

var (
	full  = sizes{Bytes: 256e6, Dials: 500, Trips: 5000, Agents: 200, Streams: 1000}
	short = sizes{Bytes: 16e6, Dials: 30, Trips: 200, Agents: 20, Streams: 50}
)

const shortRows = "loopback,limit,causeway"

// runCommand runs the program with its arguments.
func runCommand(ctx context.Context, args []string) error {
	p, out, err := parse(args)
	if err != nil {
		return err
	}
	return p.runAndWrite(ctx, out)
}

// parse reads the arguments: what to do, and the folder for the results.
func parse(args []string) (p *plan, out string, err error) {
	p = &plan{sizes: full, progress: os.Stderr}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&p.runs, "runs", 5, "how often each measure is taken of each row; the table has the medians")
	f.DurationVar(&p.timeout, "timeout", 2*time.Minute, "for one measure of one row")
	f.StringVar(&p.profiles, "profiles", "", "folder for CPU profiles of server and agent while they move bytes, the last run's (not openssh's)")
	f.StringVar(&out, "out", "", "folder for table.txt and result.json (default: only the table, on standard output)")
	size := f.Int64("size", 256, "what a throughput measure moves, in millions of bytes")
	names := f.String("rows", "", "rows, with commas between: "+rowNames()+" (default: all)")
	what := f.String("measures", "", "measures, with commas between: "+measureNames()+" (default: all but "+longMeasure+")")
	brief := f.Bool("short", false, "some seconds: one run of a few rows and small sizes, to see that it works")
	if err := f.Parse(args); err != nil {
		return nil, "", err
	}
	if f.NArg() > 0 {
		return nil, "", fmt.Errorf("bench: there is no argument %q", f.Arg(0))
	}
	if *brief {
		p.sizes = short
		defaults := map[string]string{"runs": "1", "rows": shortRows, "size": "16"}
		f.Visit(func(f *flag.Flag) { delete(defaults, f.Name) })
		for name, value := range defaults {
			f.Set(name, value)
		}
	}
	if *size < 1 || *size > 1e6 {
		return nil, "", fmt.Errorf("bench: size %d: want 1 to 1000000", *size)
	}
	p.sizes.Bytes = *size * 1e6
	if p.rows, err = chooseRows(*names); err != nil {
		return nil, "", err
	}
	p.measures, err = chooseMeasures(*what)
	return p, out, err
}

// runAndWrite runs the plan and writes the results.
func (p *plan) runAndWrite(ctx context.Context, dir string) error {
	const files = 16 << 10 // ends of a thousand streams, and then some
	allowed, err := rig.RaiseFiles(files)
	if err == nil && allowed < files {
		err = fmt.Errorf("only %d are allowed, %d are needed", allowed, files)
	}
	if err != nil {
		fmt.Fprintln(p.progress, "bench: open files:", err)
	}
	if p.profiles != "" {
		if err := os.MkdirAll(p.profiles, 0o755); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	began := time.Now()
	res, err := p.run(ctx)
	if err != nil {
		return err
	}
	res.Conditions = p.describeConditions(began)
	fmt.Print(res.table())
	if dir != "" {
		if err := res.write(dir); err != nil {
			return err
		}
	}
	if len(res.Failures) > 0 {
		return fmt.Errorf("bench: %d of the measures failed", len(res.Failures))
	}
	return nil
}

func rowNames() string {
	var names []string
	for _, r := range allRows() {
		names = append(names, r.name)
	}
	return strings.Join(names, ",")
}

func measureNames() string {
	var names []string
	for _, m := range allMeasures() {
		names = append(names, m.name)
	}
	return strings.Join(append(names, longMeasure), ",")
}
