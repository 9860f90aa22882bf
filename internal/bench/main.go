// Bench compares tunnels: the same streams from a client through a server and
// an agent to a target, each a process of its own on this machine. The README
// says how to run it and how to read what it says.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

func main() {
	rig.Main(roleEnv, play, func(ctx context.Context) error { return command(ctx, os.Args[1:]) })
}

var (
	full  = sizes{Bytes: 256e6, Dials: 500, Trips: 5000, Agents: 200, Streams: 1000}
	short = sizes{Bytes: 16e6, Dials: 30, Trips: 200, Agents: 20, Streams: 50}
)

const shortRows = "loopback,limit,causeway,causeway-mux"

// command is the program with its arguments.
func command(ctx context.Context, args []string) error {
	p, out, err := parse(args)
	if err != nil {
		return err
	}
	return p.report(ctx, out)
}

// parse reads the arguments: what to do, and the folder for what comes of it.
func parse(args []string) (p *plan, out string, err error) {
	p = &plan{sizes: full, progress: os.Stderr}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&p.runs, "runs", 5, "how often each measure is taken of each row; the table has the medians")
	f.DurationVar(&p.timeout, "timeout", 2*time.Minute, "for one measure of one row")
	f.StringVar(&p.profiles, "profiles", "", "folder for CPU profiles of server and agent while they move bytes, the last run's (not openssh's)")
	f.StringVar(&out, "out", "", "folder for table.txt, result.json and chart.svg (default: only the table, on standard output)")
	size := f.String("size", "256MB", "what a throughput measure moves, in MB or GB of 1000")
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
		defaults := map[string]string{"runs": "1", "rows": shortRows, "size": "16MB"}
		f.Visit(func(f *flag.Flag) { delete(defaults, f.Name) })
		for name, value := range defaults {
			f.Set(name, value)
		}
	}
	if p.sizes.Bytes, err = parseSize(*size); err != nil {
		return nil, "", err
	}
	if p.rows, err = choose(*names); err != nil {
		return nil, "", err
	}
	p.measures, err = chooseMeasures(*what)
	return p, out, err
}

// report runs the plan and writes what came of it.
func (p *plan) report(ctx context.Context, dir string) error {
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
	res.Conditions = p.conditions(began)
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

// parseSize reads "256MB", "1.5GB" and plain bytes.
func parseSize(s string) (int64, error) {
	unit := 1.0
	number := s
	for suffix, u := range map[string]float64{"MB": 1e6, "GB": 1e9} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = n, u
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n*unit < 1e6 || n*unit > 1e12 {
		return 0, fmt.Errorf("bench: size %q: want such as 256MB, from 1MB to 1000GB", s)
	}
	return int64(n * unit), nil
}

func rowNames() string {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return strings.Join(names, ",")
}

func measureNames() string {
	var names []string
	for _, m := range measures() {
		names = append(names, m.name)
	}
	return strings.Join(append(names, longMeasure), ",")
}
