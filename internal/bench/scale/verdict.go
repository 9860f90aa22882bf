package main

import "fmt"

// verdict says whether a figure is what it is to be.
type verdict struct {
	what, want, got string
	met             bool
}

// verdicts are of the figures that there are.
func (r *result) verdicts() (all []verdict) {
	add := func(what, want, got string, met bool) { all = append(all, verdict{what, want, got, met}) }
	if n := len(r.Idle); n > 0 {
		last := r.Idle[n-1]
		for i, s := range last.sides() {
			name := sideNames[i]
			sessions := float64(last.Sessions) / float64(last.Agents)
			got := fmt.Sprintf("heap and stacks %s, resident %s; a session %s, %s", kib(s.Heap), kib(s.RSS), kib(s.Heap/sessions), kib(s.RSS/sessions))
			add("memory of an idle agent, "+name, "40 KiB", got, s.Heap <= limitMemory)
			add("CPU of the idle agents, "+name, "10% of a core", percent(s.CPU), s.CPU < limitCPU)
		}
		all = append(all, r.growth(last)...)
	}
	if r.Dials != nil {
		add("dials", "none fails", r.Dials.String(), len(r.Dials.Failed) == 0)
	}
	if f := r.Forward; f != nil {
		more := f.Forwarded - f.Local
		add("a forwarded dial", "0.4 ms more", round(more).String(), more <= limitForward)
		down, up := f.ForwardedDown/f.LocalDown, f.ForwardedUp/f.LocalUp
		add("a forwarded stream", "60% of the throughput", percent(down)+" down, "+percent(up)+" up", min(down, up) >= limitForwardRate)
	}
	for _, t := range r.Restarts {
		limit := limitBackOne
		if t.Replicas > 1 {
			limit = limitBackAll
		}
		add(t.What+", all with two sessions", limit.String(), round(t.Two).String(), t.Two <= limit)
		if !t.Killed && t.Dials.Dials > 0 {
			add(t.What+", dials", "none fails", t.Dials.String(), len(t.Dials.Failed) == 0)
		}
	}
	return all
}

// growth compares an agent among the most with one among a hundred.
func (r *result) growth(last idle) (all []verdict) {
	for _, few := range r.Idle {
		if few.Agents != 100 || last.Agents <= few.Agents {
			continue
		}
		for i, s := range last.sides() {
			before := few.sides()[i]
			heap, rss := s.Heap/before.Heap, s.RSS/before.RSS
			all = append(all, verdict{
				"memory of an agent beside that among 100, " + sideNames[i], "at most 120%",
				fmt.Sprintf("heap and stacks %s, resident %s", percent(heap), percent(rss)), max(heap, rss) <= limitGrowth,
			})
		}
	}
	return all
}
