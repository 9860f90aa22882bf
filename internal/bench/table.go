package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// table is the result for a person who reads text.
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
	for _, s := range sections() {
		if lines := r.cells(s); lines != nil {
			fmt.Fprintf(&b, "\n%s (%s)\n", s.title, s.note)
			b.WriteString(align(lines))
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

// cells returns the lines of a section with their heading, or nil where no row
// has a value.
func (r *result) cells(s section) [][]string {
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
					cell += r.ratio(row, m)
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

// ratio is that to the limit row's median, or "" without one.
func (r *result) ratio(row rowResult, m metric) string {
	for _, limit := range r.Rows {
		if v, ok := limit.Values[m.Key]; ok && limit.Name == limitRow.name && v.Median > 0 {
			return fmt.Sprintf(" (%.2f)", row.Values[m.Key].Median/v.Median)
		}
	}
	return ""
}

// align pads the first column on its right and the others on their left.
func align(lines [][]string) string {
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
