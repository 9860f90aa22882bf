package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// table returns the result as text for people.
func (r *result) table() string {
	var b strings.Builder
	c := r.Conditions
	fmt.Fprintf(&b, "%s, %s, took %s\n", c.Date.Format("2006-01-02 15:04 MST"), plural(c.Runs, "run"), c.Took)
	fmt.Fprintf(&b, "%s of %s, %s, Linux %s, %s\n", plural(c.Cores, "core"), c.CPU, c.Memory, c.Kernel, c.Go)
	if c.OpenSSH != "" {
		fmt.Fprintf(&b, "%s\n", c.OpenSSH)
	}
	fmt.Fprintf(&b, "%.0f MB a throughput measure, %d dials, %d round trips, %d idle agents at most, %d idle streams\n",
		float64(c.Sizes.Bytes)/1e6, c.Sizes.Dials, c.Sizes.Trips, c.Sizes.Agents, c.Sizes.Streams)
	for _, s := range allSections() {
		if lines := r.sectionLines(s); lines != nil {
			fmt.Fprintf(&b, "\n%s (%s)\n", s.title, s.note)
			b.WriteString(alignColumns(lines))
		}
	}
	b.WriteString("\nRows\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "  %-15s %s\n", row.Name, row.About)
	}
	for i, f := range r.Failures {
		if i == 0 {
			b.WriteString("\nFailures\n")
		}
		fmt.Fprintf(&b, "  run %d, %s, %s: %s\n", f.Run, f.Row, f.Measure, strings.TrimSpace(f.Err))
	}
	return b.String()
}

// sectionLines returns the lines of a section with their heading, or nil where no row
// has a value.
func (r *result) sectionLines(s section) [][]string {
	heading := []string{""}
	for _, m := range s.metrics {
		heading = append(heading, m.Title)
	}
	lines := [][]string{heading}
	some := false
	for _, row := range r.Rows {
		line := []string{row.Name}
		has := false
		for _, m := range s.metrics {
			cell := "-"
			if v, ok := row.Values[m.Key]; ok {
				has = true
				cell = fmt.Sprintf(m.Round, v.Median)
				if s.ratio {
					cell += r.limitRatio(row, m)
				}
			}
			line = append(line, cell)
		}
		if has {
			some = true
			lines = append(lines, line)
		}
	}
	if !some {
		return nil
	}
	return lines
}

// limitRatio is that to the limit row's median, or "" without one.
func (r *result) limitRatio(row rowResult, m metric) string {
	for _, limit := range r.Rows {
		if v, ok := limit.Values[m.Key]; ok && limit.Name == limitRow.name && v.Median > 0 {
			return fmt.Sprintf(" (%.2f)", row.Values[m.Key].Median/v.Median)
		}
	}
	return ""
}

// alignColumns pads the first column on its right and the others on their left.
func alignColumns(lines [][]string) string {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "  %-*s", max(width[0], 15), line[0])
		for i, cell := range line[1:] {
			fmt.Fprintf(&b, "  %*s", width[i+1], cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A metric is a number that a measure gives for a row, per run.
type metric struct {
	Key   string // measure.name
	Title string // the column's
	Unit  string
	Round string // the verb that formats a value
}

// A section is a part of the table.
type section struct {
	title   string
	note    string
	ratio   bool // to the limit row's, in the table
	metrics []metric
}

// allSections is every metric, in the table's order.
func allSections() []section {
	s := []section{
		{title: "Throughput, MB/s", note: "more is better; wanders by 30%", ratio: true, metrics: perTransfer("rate", "MB/s", "%.0f")},
		{title: "CPU of server and agent, s/GB", note: "less is better; the steady figure", ratio: true, metrics: perTransfer("cpu", "s/GB", "%.2f")},
	}
	for _, n := range stalls {
		s = append(s, latencySection(n))
	}
	s = append(s, longSections()...)
	return append(s,
		section{title: "Peak resident memory, MB", note: "of the process or, of ssh, processes", metrics: peakMetrics()},
		section{title: "Memory of an idle agent, KiB", note: "heap: live, with stacks; less is better", metrics: idleMetrics("agents")},
		section{title: "Memory of an idle stream, KiB", note: "heap: live, with stacks; less is better", metrics: idleMetrics("streams")})
}

func perTransfer(name, unit, round string) []metric {
	var m []metric
	for _, t := range transfers {
		m = append(m, metric{t.name + "." + name, t.title, unit, round})
	}
	return m
}

func latencySection(stalled int) section {
	name := latencyName(stalled)
	title := "Latency, ms"
	if stalled > 0 {
		title = fmt.Sprintf("Latency beside %s, ms", plural(stalled, "stalled stream"))
	}
	return section{title: title, note: "less is better", metrics: []metric{
		{name + ".dial.p50", "dial+echo p50", "ms", "%.3f"},
		{name + ".dial.p99", "dial+echo p99", "ms", "%.3f"},
		{name + ".trip.p50", "round trip p50", "ms", "%.3f"},
		{name + ".trip.p99", "round trip p99", "ms", "%.3f"},
	}}
}

func peakMetrics() []metric {
	var m []metric
	for _, t := range transfers[1:2] {
		m = append(m,
			metric{t.name + ".peak.server", t.title + ": server", "MB", "%.0f"},
			metric{t.name + ".peak.agent", t.title + ": agent", "MB", "%.0f"})
	}
	most := stalls[len(stalls)-1]
	return append(m,
		metric{latencyName(most) + ".peak.server", fmt.Sprintf("%d stalled: server", most), "MB", "%.0f"},
		metric{latencyName(most) + ".peak.agent", fmt.Sprintf("%d stalled: agent", most), "MB", "%.0f"})
}

func idleMetrics(name string) []metric {
	return []metric{
		{name + ".server.heap", "server: heap", "KiB", "%.1f"},
		{name + ".agent.heap", "agent: heap", "KiB", "%.1f"},
		{name + ".server.rss", "server: resident", "KiB", "%.1f"},
		{name + ".agent.rss", "agent: resident", "KiB", "%.1f"},
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// median returns the middle value, the mean of the two in the middle of an
// even number of them, and 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	i := len(s) / 2
	if len(s)%2 == 1 {
		return s[i]
	}
	return (s[i-1] + s[i]) / 2
}

// quantile returns the smallest value that is not less than a share of q of
// all, by nearest rank, and the zero value of none.
func quantile[T cmp.Ordered](v []T, q float64) T {
	if len(v) == 0 {
		var none T
		return none
	}
	s := slices.Sorted(slices.Values(v))
	// The product of a share such as 0.07 and 100 may be a bit more than 7.
	rank := int(q*float64(len(s)) + 1 - 1e-9)
	return s[min(max(rank, 1), len(s))-1]
}
