package main

import "fmt"

// A metric is a number that a measure gives for a row, per run.
type metric struct {
	Key   string // measure.name
	Title string // of a column
	Unit  string
	Round string // of the format
}

// A section is a part of the table, and of the chart where a column is drawn.
type section struct {
	title   string
	note    string
	ratio   bool // to the limit row's, in the table
	drawn   bool
	metrics []metric
}

// sections is every metric, in the table's order.
func sections() []section {
	s := []section{
		{title: "Throughput, MB/s", note: "more is better; wanders by 30%", ratio: true, drawn: true, metrics: perTransfer("rate", "MB/s", "%.0f")},
		{title: "CPU of server and agent, s/GB", note: "less is better; the steady figure", ratio: true, drawn: true, metrics: perTransfer("cpu", "s/GB", "%.2f")},
	}
	for _, n := range stalls {
		s = append(s, latencySection(n))
	}
	s = append(s, longSections()...)
	return append(s,
		section{title: "Peak resident memory, MB", note: "of the process or, of ssh, processes", metrics: peaks()},
		section{title: "Memory of an idle agent, KiB", note: "heap: live, with stacks; less is better", drawn: true, metrics: idle("agents")},
		section{title: "Memory of an idle stream, KiB", note: "heap: live, with stacks; less is better", drawn: true, metrics: idle("streams")})
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
	return section{title: title, note: "less is better", drawn: stalled != 1, metrics: []metric{
		{name + ".dial.p50", "dial+echo p50", "ms", "%.3f"},
		{name + ".dial.p99", "dial+echo p99", "ms", "%.3f"},
		{name + ".trip.p50", "round trip p50", "ms", "%.3f"},
		{name + ".trip.p99", "round trip p99", "ms", "%.3f"},
	}}
}

func peaks() []metric {
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

func idle(name string) []metric {
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
