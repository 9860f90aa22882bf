// Bench compares tunnels: the same streams from a client through a server and
// an agent to a target, each a process of its own on this machine. The README
// says how to run it and how to read what it says.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if name := os.Getenv(roleEnv); name != "" {
		exit(play(name, os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var (
	full  = sizes{Bytes: 256e6, Dials: 500, Trips: 5000, Agents: 200, Streams: 1000}
	short = sizes{Bytes: 16e6, Dials: 30, Trips: 200, Agents: 20, Streams: 50}
)

const shortRows = "loopback,limit,causeway-mux"

// command is the program with its arguments.
func command(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	runs := f.Int("runs", 5, "how often each measure is taken of each row; the table has the medians")
	size := f.String("size", "256MB", "what a throughput measure moves, in MB or GB of 1000")
	out := f.String("out", "", "folder for table.txt, result.json and chart.svg (default: only the table, on standard output)")
	names := f.String("rows", "", "rows, with commas between: "+rowNames()+" (default: all)")
	what := f.String("measures", "", "measures, with commas between: "+measureNames()+" (default: all)")
	brief := f.Bool("short", false, "some seconds: one run of a few rows and small sizes, to see that it works")
	timeout := f.Duration("timeout", 2*time.Minute, "for one measure of one row")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("bench: there is no argument %q", f.Arg(0))
	}
	p := &plan{sizes: full, runs: *runs, timeout: *timeout, progress: os.Stderr}
	if *brief {
		set := map[string]bool{}
		f.Visit(func(f *flag.Flag) { set[f.Name] = true })
		p.sizes = short
		if !set["runs"] {
			p.runs = 1
		}
		if !set["rows"] {
			*names = shortRows
		}
		if !set["size"] {
			*size = "16MB"
		}
	}
	var err error
	if p.sizes.Bytes, err = parseSize(*size); err != nil {
		return err
	}
	if p.rows, err = choose(*names); err != nil {
		return err
	}
	if p.measures, err = chooseMeasures(*what); err != nil {
		return err
	}
	return p.report(ctx, *out)
}

// report runs the plan and writes what came of it.
func (p *plan) report(ctx context.Context, dir string) error {
	const files = 16 << 10 // ends of a thousand streams, and then some
	if err := raiseFiles(files); err != nil {
		fmt.Fprintln(p.progress, err)
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
	return strings.Join(names, ",")
}
