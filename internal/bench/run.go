package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// A result is what all runs gave.
type result struct {
	Conditions conditions
	Rows       []rowResult
	Failures   []failure `json:",omitempty"`
}

type rowResult struct {
	Name   string
	About  string
	Values map[string]*series
}

// A series is one metric of one row.
type series struct {
	Unit   string
	Median float64
	Runs   []float64
}

type failure struct {
	Run          int
	Row, Measure string
	Err          string
}

// A plan says what to measure.
type plan struct {
	rows     []row
	measures []measure
	sizes    sizes
	runs     int
	timeout  time.Duration // for one measure of one row
	profiles string        // folder; "": none are wanted
	progress io.Writer
}

// run takes the rows in turn within each measure of each run, so that what the
// machine does besides falls on all of them. A measure that fails is noted, and
// the others go on; only ctx ends the run before its time.
func (p *plan) run(ctx context.Context) (*result, error) {
	res := &result{}
	for _, r := range p.rows {
		res.Rows = append(res.Rows, rowResult{r.name, r.about, map[string]*series{}})
	}
	for n := range p.runs {
		for _, m := range p.measures {
			for i, r := range p.rows {
				if m.fits != nil && !m.fits(r) {
					continue
				}
				values, took, err := p.measureOnce(ctx, m, r)
				if ctx.Err() != nil {
					return nil, fmt.Errorf("bench: %w", ctx.Err())
				}
				p.reportProgress(n, m, r, values, took, err)
				if err != nil {
					res.Failures = append(res.Failures, failure{n + 1, r.name, m.name, err.Error()})
					continue
				}
				res.Rows[i].add(values, metricUnits())
			}
		}
	}
	return res, nil
}

// metricUnits is each metric's, and that of the peaks for which the table has no room.
func metricUnits() map[string]string {
	units := map[string]string{}
	for _, m := range allMeasures() {
		units[m.name+".peak.server"], units[m.name+".peak.agent"] = "MB", "MB"
	}
	for _, s := range allSections() {
		for _, m := range s.metrics {
			units[m.Key] = m.Unit
		}
	}
	return units
}

func (r *rowResult) add(values map[string]float64, units map[string]string) {
	for key, v := range values {
		s := r.Values[key]
		if s == nil {
			s = &series{Unit: units[key]}
			r.Values[key] = s
		}
		s.Runs = append(s.Runs, v)
		s.Median = median(s.Runs)
	}
}

func (p *plan) measureOnce(ctx context.Context, m measure, r row) (map[string]float64, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	began := time.Now()
	b, err := startBed(ctx, r, m.line)
	if err != nil {
		return nil, time.Since(began), err
	}
	defer b.stop()
	b.profiles = p.profiles
	values, err := m.run(ctx, b, p.sizes)
	if err == nil && len(values) == 0 {
		err = errors.New("bench: no value")
	}
	return values, time.Since(began), err
}

func (p *plan) reportProgress(n int, m measure, r row, values map[string]float64, took time.Duration, err error) {
	fmt.Fprintf(p.progress, "run %d/%d  %-14s %-15s %5.1f s", n+1, p.runs, m.name, r.name, took.Seconds())
	if err != nil {
		fmt.Fprintf(p.progress, "  FAILED: %v\n", err)
		return
	}
	for _, s := range allSections() {
		for _, c := range s.metrics {
			if v, ok := values[c.Key]; ok {
				fmt.Fprintf(p.progress, "  "+c.Round+" %s", v, c.Unit)
			}
		}
	}
	fmt.Fprintln(p.progress)
}

type conditions struct {
	rig.Conditions
	OpenSSH string `json:",omitempty"`
	Runs    int
	Sizes   sizes
}

func (p *plan) describeConditions(began time.Time) conditions {
	c := conditions{Conditions: rig.ConditionsSince(began), Runs: p.runs, Sizes: p.sizes}
	for _, r := range p.rows {
		if r.name == opensshRow.name {
			c.OpenSSH = sshVersion()
		}
	}
	return c
}

// write leaves the two files in a folder, which it makes if need be.
func (r *result) write(dir string) error {
	if err := rig.Write(dir, r, map[string]string{"table.txt": r.table()}); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}
