package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// The limits that the figures should keep.
const (
	limitMemory  = 40 << 10 // bytes of heap and stacks of an idle agent, a side
	limitGrowth  = 1.2      // memory of an agent among the most, to that of one among a hundred
	limitCPU     = 0.1      // cores, for all idle agents
	limitBackOne = 30 * time.Second
	limitBackAll = 60 * time.Second
)

func roundForTable(d time.Duration) time.Duration {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < time.Second:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(100 * time.Millisecond)
}

func formatKiB(bytes float64) string { return fmt.Sprintf("%.1f KiB", bytes/1024) }

func formatPercent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func (i *idle) String() string {
	line := fmt.Sprintf("%d idle agents, %d sessions:", i.Agents, i.Sessions)
	for n, s := range i.bothSides() {
		line += fmt.Sprintf(" %s %s heap, %s resident an agent, %s CPU;", sideNames[n], formatKiB(s.Heap), formatKiB(s.RSS), formatPercent(s.CPU))
	}
	return line
}

func (d dialCount) String() string {
	line := fmt.Sprintf("%d dials, %d forwarded, ", d.Dials, d.Forwarded)
	failed := 0
	for _, n := range d.Failed {
		failed += n
	}
	line += fmt.Sprintf("%d failed", failed)
	for _, code := range slices.Sorted(maps.Keys(d.Failed)) {
		line += fmt.Sprintf(", %d: %s", d.Failed[code], code)
	}
	return line
}

func (d *dialling) String() string {
	return fmt.Sprintf("%.0f a second (%.0f asked for): %v; p50 %v, p99 %v", d.Rate, d.Asked, d.dialCount, roundForTable(d.P50), roundForTable(d.P99))
}

func (r *restart) String() string {
	line := fmt.Sprintf("%s: left after %v, ready after %v, all agents with a session after %v (least %d) and with two after %v, sessions %v",
		r.What, roundForTable(r.Left), roundForTable(r.Back), roundForTable(r.One), r.Least, roundForTable(r.Two), r.Shares)
	if r.Dials.Dials > 0 {
		line += fmt.Sprintf("; %v", r.Dials)
	}
	return line
}

func (s *soak) String() string {
	return fmt.Sprintf("%v, %d restarts of replicas, %d of agents; %v; heap before and after: replicas %.1f and %.1f MiB, agents %.1f and %.1f MiB; goroutines %d and %d, %d and %d",
		roundForTable(s.Took), len(s.Restarts), s.Kicked, s.Dials, heapMiB(s.Before[0]), heapMiB(s.After[0]), heapMiB(s.Before[1]), heapMiB(s.After[1]),
		s.Before[0].Goroutines, s.After[0].Goroutines, s.Before[1].Goroutines, s.After[1].Goroutines)
}

func heapMiB(u usage) float64 { return float64(u.Heap) / (1 << 20) }

// table returns the result as text for people.
func (r *result) table() string {
	b := &strings.Builder{}
	c := r.Conditions
	fmt.Fprintf(b, "%s\n%s, %d cores of %s, Linux %s, %s\n\n", c.Command, c.Date.Format("2006-01-02 15:04"), c.Cores, c.CPU, c.Kernel, c.Go)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	r.idleTable(w)
	w.Flush()
	if r.Dials != nil {
		fmt.Fprintf(b, "dials: %s\n", r.Dials)
	}
	b.WriteString("\n")
	w = tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	restartTable(w, "", r.Restarts)
	if r.Soak != nil {
		restartTable(w, "soak: ", r.Soak.Restarts)
	}
	w.Flush()
	if r.Soak != nil {
		fmt.Fprintf(b, "\nsoak: %s\n", r.Soak)
	}
	b.WriteString("\n")
	w = tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, v := range r.verdicts() {
		fmt.Fprintf(w, "%s\t%s\twanted: %s\t%s\n", map[bool]string{true: "ok", false: "MISSED"}[v.met], v.what, v.want, v.got)
	}
	w.Flush()
	b.WriteString("\ncores busy in each phase, for the fleet and for others; load average before and after\n")
	for _, l := range r.Load {
		fmt.Fprintf(b, "%-8s %.2f  %.2f  %s  %s\n", l.Phase, l.Own, l.Others, l.Before, l.After)
	}
	return b.String()
}

func (r *result) idleTable(w *tabwriter.Writer) {
	if len(r.Idle) == 0 {
		return
	}
	fmt.Fprint(w, "idle agents\tsessions\tenrolled in\treplicas: heap\tresident\tCPU\tagents: heap\tresident\tCPU\t\n")
	for i, s := range r.Idle {
		fmt.Fprintf(w, "%d\t%d\t%v\t", s.Agents, s.Sessions, roundForTable(r.Enrol[i].Took))
		for _, side := range s.bothSides() {
			fmt.Fprintf(w, "%s\t%s\t%s\t", formatKiB(side.Heap), formatKiB(side.RSS), formatPercent(side.CPU))
		}
		fmt.Fprint(w, "\n")
	}
}

func restartTable(w *tabwriter.Writer, prefix string, all []*restart) {
	if len(all) > 0 && prefix == "" {
		fmt.Fprint(w, "what\tleft\tready\tall have one\tall have two\tleast with one\tcores: fleet\tothers\tdials\n")
	}
	for _, r := range all {
		fmt.Fprintf(w, "%s%s\t%v\t%v\t%v\t%v\t%d\t%.2f\t%.2f\t%v\n",
			prefix, r.What, roundForTable(r.Left), roundForTable(r.Back), roundForTable(r.One), roundForTable(r.Two), r.Least, r.Load.Own, r.Load.Others, r.Dials)
	}
}

// verdict says whether a figure keeps its limit.
type verdict struct {
	what, want, got string
	met             bool
}

// verdicts returns a verdict for each limit whose figures the result has.
func (r *result) verdicts() (all []verdict) {
	add := func(what, want, got string, met bool) { all = append(all, verdict{what, want, got, met}) }
	if n := len(r.Idle); n > 0 {
		last := r.Idle[n-1]
		for i, s := range last.bothSides() {
			name := sideNames[i]
			sessions := float64(last.Sessions) / float64(last.Agents)
			got := fmt.Sprintf("heap and stacks %s, resident %s; a session %s, %s", formatKiB(s.Heap), formatKiB(s.RSS), formatKiB(s.Heap/sessions), formatKiB(s.RSS/sessions))
			add("memory of an idle agent, "+name, "40 KiB", got, s.Heap <= limitMemory)
			add("CPU of the idle agents, "+name, "10% of a core", formatPercent(s.CPU), s.CPU < limitCPU)
		}
		all = append(all, r.growthVerdicts(last)...)
	}
	if r.Dials != nil {
		add("dials", "none fails", r.Dials.String(), len(r.Dials.Failed) == 0)
	}
	for _, t := range r.Restarts {
		limit := limitBackOne
		if t.Replicas > 1 {
			limit = limitBackAll
		}
		add(t.What+", all with two sessions", limit.String(), roundForTable(t.Two).String(), t.Two <= limit)
		if !t.Killed && t.Dials.Dials > 0 {
			add(t.What+", dials", "none fails", t.Dials.String(), len(t.Dials.Failed) == 0)
		}
	}
	return all
}

// growthVerdicts compares an agent among the most with one among a hundred.
func (r *result) growthVerdicts(last idle) (all []verdict) {
	for _, few := range r.Idle {
		if few.Agents != 100 || last.Agents <= few.Agents {
			continue
		}
		for i, s := range last.bothSides() {
			before := few.bothSides()[i]
			heap, rss := s.Heap/before.Heap, s.RSS/before.RSS
			all = append(all, verdict{
				"memory of an agent beside that among 100, " + sideNames[i], "at most 120%",
				fmt.Sprintf("heap and stacks %s, resident %s", formatPercent(heap), formatPercent(rss)), max(heap, rss) <= limitGrowth,
			})
		}
	}
	return all
}
