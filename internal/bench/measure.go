package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A measure starts nothing: it gets a bed of its own, so that a peak is its
// own too. It returns a value per metric, under the metric's key.
type measure struct {
	name string
	run  func(context.Context, *bed, sizes) (map[string]float64, error)
	fits func(row) bool // nil: every row
	line line           // between server and agent; zero: none
}

// sizes is how much is measured.
type sizes struct {
	Bytes   int64 // in a throughput measure, all streams together
	Dials   int
	Trips   int
	Agents  int // at most; a row may want fewer
	Streams int // idle ones
}

type transfer struct {
	name, title string
	op          string
	streams     int
}

var transfers = []transfer{
	{"down1", "1 stream down", "down", 1},
	{"down8", "8 streams down", "down", 8},
	{"up1", "1 stream up", "up", 1},
}

// stalls is beside how many stalled streams the latency is measured.
var stalls = []int{0, 1, 200}

func latencyName(stalled int) string {
	if stalled == 0 {
		return "latency"
	}
	return fmt.Sprintf("stalled%d", stalled)
}

func allMeasures() []measure {
	var m []measure
	for _, t := range transfers {
		m = append(m, measure{name: t.name, run: t.run})
	}
	for _, n := range stalls {
		m = append(m, measure{name: latencyName(n), run: latencyMeasure(n)})
	}
	return append(m,
		measure{name: "agents", run: idleAgents, fits: func(r row) bool { return r.idleAgents > 0 }},
		measure{name: "streams", run: idleStreams, fits: func(r row) bool { return r.newServer != nil }})
}

// chooseMeasures returns the measures in a list of names; for "" all but
// long, which takes minutes.
func chooseMeasures(names string) ([]measure, error) {
	if names == "" {
		return allMeasures(), nil
	}
	var chosen []measure
	for name := range strings.SplitSeq(names, ",") {
		if name == longMeasure {
			chosen = append(chosen, longMeasures()...)
			continue
		}
		all := append(allMeasures(), longMeasures()...)
		i := slices.IndexFunc(all, func(m measure) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("bench: there is no measure %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func (t transfer) run(ctx context.Context, b *bed, s sizes) (map[string]float64, error) {
	q := request{Op: t.op, Addr: b.front, N: t.streams, Size: s.Bytes / int64(t.streams)}
	warm := q
	warm.Size /= 16
	if _, err := b.client.call(ctx, warm); err != nil {
		return nil, err
	}
	total := float64(q.Size * int64(t.streams))
	if b.server == nil {
		r, err := b.client.call(ctx, q)
		return map[string]float64{t.name + ".rate": total / 1e6 / r.Took.Seconds()}, err
	}
	if err := b.resetPeaks(ctx); err != nil {
		return nil, err
	}
	stop, err := b.startProfiles(ctx, t.name)
	if err != nil {
		return nil, err
	}
	server0, agent0, err := b.endUsages(ctx, false)
	if err != nil {
		return nil, err
	}
	r, err := b.client.call(ctx, q)
	if err != nil {
		return nil, err
	}
	server, agent, err := b.endUsages(ctx, false)
	if err != nil {
		return nil, err
	}
	cpu := server.CPU + agent.CPU - server0.CPU - agent0.CPU
	m := map[string]float64{
		t.name + ".rate": total / 1e6 / r.Took.Seconds(),
		t.name + ".cpu":  cpu.Seconds() / (total / 1e9),
	}
	b.addPeaks(m, t.name, server, agent)
	return m, stop()
}

func latencyMeasure(stalled int) func(context.Context, *bed, sizes) (map[string]float64, error) {
	name := latencyName(stalled)
	return func(ctx context.Context, b *bed, s sizes) (map[string]float64, error) {
		q := request{Op: "latency", Addr: b.front, Dials: s.Dials / 10, Trips: s.Trips / 10}
		if _, err := b.client.call(ctx, q); err != nil {
			return nil, err
		}
		if stalled > 0 {
			if err := b.stallStreams(ctx, stalled); err != nil {
				return nil, err
			}
		}
		q.Dials, q.Trips = s.Dials, s.Trips
		r, err := b.client.call(ctx, q)
		if err != nil {
			return nil, err
		}
		m := map[string]float64{
			name + ".dial.p50": asMilliseconds(quantile(r.Dials, 0.50)),
			name + ".dial.p99": asMilliseconds(quantile(r.Dials, 0.99)),
			name + ".trip.p50": asMilliseconds(quantile(r.Trips, 0.50)),
			name + ".trip.p99": asMilliseconds(quantile(r.Trips, 0.99)),
		}
		if b.server == nil {
			return m, nil
		}
		server, agent, err := b.endUsages(ctx, false)
		b.addPeaks(m, name, server, agent)
		return m, err
	}
}

// addPeaks adds those of a measure.
func (b *bed) addPeaks(m map[string]float64, name string, server, agent usage) {
	m[name+".peak.server"] = float64(server.Peak) / 1e6
	if b.agent != nil {
		m[name+".peak.agent"] = float64(agent.Peak) / 1e6
	}
}

func asMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const (
	memoryLimit = 4 << 30 // for a server or an agent with stalled streams
	stallPoll   = 100 * time.Millisecond
	stallStill  = 5               // polls in a row that saw no byte move
	stallTime   = 5 * time.Second // after which it is measured while they move
)

// stallStreams opens streams that are not read, and waits until everything between
// the target and the client is full.
func (b *bed) stallStreams(ctx context.Context, n int) error {
	if _, err := b.client.call(ctx, request{Op: "stall", Addr: b.front, N: n}); err != nil {
		return err
	}
	end := time.Now().Add(stallTime)
	var last int64
	still := 0
	return pollUntil(ctx, stallPoll, func() (bool, error) {
		r, err := b.target.call(ctx, request{Op: "sent"})
		if err != nil {
			return false, err
		}
		if still++; r.N != last {
			last, still = r.N, 0
		}
		if b.server != nil {
			server, agent, err := b.endUsages(ctx, false)
			if err != nil {
				return false, err
			}
			if max(server.RSS, agent.RSS) > memoryLimit {
				return false, errUnbounded
			}
		}
		return still >= stallStill || time.Now().After(end), nil
	})
}

// idleAgents connects many agents beside the first one.
func idleAgents(ctx context.Context, b *bed, s sizes) (map[string]float64, error) {
	n := min(s.Agents, b.row.idleAgents)
	return b.memoryOf(ctx, "agents", n-1, func() error {
		if _, err := b.connect(ctx, n-1); err != nil {
			return err
		}
		return b.waitSessions(ctx, n)
	})
}

// idleStreams opens many streams beside the first one.
func idleStreams(ctx context.Context, b *bed, s sizes) (map[string]float64, error) {
	return b.memoryOf(ctx, "streams", s.Streams, func() error {
		_, err := b.client.call(ctx, request{Op: "idle", Addr: b.front, N: s.Streams})
		return err
	})
}

// memoryOf is what each of n things costs that add makes.
func (b *bed) memoryOf(ctx context.Context, name string, n int, add func() error) (map[string]float64, error) {
	if _, err := b.client.call(ctx, request{Op: "idle", Addr: b.front, N: 1}); err != nil {
		return nil, err
	}
	server0, agent0, err := b.settledUsages(ctx)
	if err != nil {
		return nil, err
	}
	if err := add(); err != nil {
		return nil, err
	}
	server, agent, err := b.settledUsages(ctx)
	each := func(after, before int64) float64 { return float64(after-before) / float64(n) / 1024 }
	m := map[string]float64{name + ".server.rss": each(server.RSS, server0.RSS)}
	if server.Heap > 0 {
		m[name+".server.heap"] = each(server.Heap, server0.Heap)
	}
	if b.agent != nil {
		m[name+".agent.rss"] = each(agent.RSS, agent0.RSS)
	}
	if agent.Heap > 0 {
		m[name+".agent.heap"] = each(agent.Heap, agent0.Heap)
	}
	return m, err
}

// settledUsages returns the usages once the goroutines of what has just begun or
// ended are gone: as long as the heaps shrink, twice at least.
func (b *bed) settledUsages(ctx context.Context) (server, agent usage, err error) {
	last := int64(-1)
	err = pollUntil(ctx, 300*time.Millisecond, func() (bool, error) {
		if server, agent, err = b.endUsages(ctx, true); err != nil {
			return false, err
		}
		sum := server.Heap + agent.Heap
		done := last >= 0 && sum >= last-last/100
		last = sum
		return done, nil
	})
	return server, agent, err
}
