// Package bench compares tunnels: the same streams from a client through a server
// and an agent to a target, each a process of its own on this machine. The README
// says how to run it and how to read what it says.
package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// sizes is how much is measured.
type sizes struct {
	bytes   int64 // in a throughput measure, all streams together
	dials   int
	trips   int
	agents  int // at most; a row may want fewer
	streams int // idle ones
}

func wantedSizes() sizes {
	if testing.Short() {
		return sizes{bytes: 16e6, dials: 30, trips: 200, agents: 20, streams: 50}
	}
	return sizes{bytes: 256e6, dials: 500, trips: 5000, agents: 200, streams: 1000}
}

// A measure starts nothing: it gets a bed of its own, so that a peak is its own too.
type measure struct {
	name string
	take func(*bed, sizes)
	fits func(row) bool // nil: every row
}

func allMeasures() []measure {
	return []measure{
		{"down1", transfer{streams: 1}.measure, nil},
		{"down8", transfer{streams: 8}.measure, nil},
		{"up1", transfer{streams: 1, up: true}.measure, nil},
		{"latency", latency(0), nil},
		{"stalled1", latency(1), nil},
		{"stalled200", latency(200), nil},
		{"agents", (*bed).measureAgents, func(r row) bool { return r.idleAgents > 0 }},
		{"streams", (*bed).measureStreams, func(r row) bool { return r.newServer != nil }},
	}
}

// BenchmarkTunnels has the rows take turns within each measure, so that what the
// machine does besides falls on all of them.
func BenchmarkTunnels(b *testing.B) {
	for _, m := range allMeasures() {
		b.Run("measure="+m.name, func(b *testing.B) {
			for _, r := range allRows() {
				if m.fits != nil && !m.fits(r) {
					continue
				}
				b.Run("row="+r.name, func(b *testing.B) {
					b.ReportMetric(0, "ns/op") // which also has the start of the processes
					bed := newBed(b, r, line{})
					bed.profile(m.name)
					m.take(bed, wantedSizes())
				})
			}
		})
	}
}

type transfer struct {
	streams int
	up      bool
}

func (t transfer) measure(b *bed, s sizes) {
	args := TransferArgs{Addr: b.front, Streams: t.streams, Up: t.up, Size: s.bytes / int64(t.streams)}
	warm := args
	warm.Size /= 16
	b.call(b.client, "Transfer", warm, new(time.Duration))
	for _, c := range b.tunnelProcesses() {
		b.call(c, "ResetPeak", rig.None{}, nil)
	}
	before := b.usages(false)
	var took time.Duration
	for range b.N {
		var once time.Duration
		b.call(b.client, "Transfer", args, &once)
		took += once
	}
	total := float64(args.Size) * float64(t.streams) * float64(b.N)
	b.ReportMetric(total/1e6/took.Seconds(), "MB/s")
	var cpu time.Duration
	for name, u := range b.usages(false) {
		cpu += u.CPU - before[name].CPU
		b.ReportMetric(float64(u.Peak)/1e6, name+"-peak-MB")
	}
	if b.server != nil {
		b.ReportMetric(cpu.Seconds()/(total/1e9), "cpu-s/GB")
	}
}

// latency is beside so many stalled streams.
func latency(stalled int) func(*bed, sizes) {
	return func(b *bed, s sizes) {
		b.call(b.client, "Latency", LatencyArgs{b.front, s.dials / 10, s.trips / 10}, new(Latencies))
		if stalled > 0 {
			b.stallStreams(stalled)
		}
		var all Latencies
		for range b.N {
			var l Latencies
			b.call(b.client, "Latency", LatencyArgs{b.front, s.dials, s.trips}, &l)
			all.Dials, all.Trips = append(all.Dials, l.Dials...), append(all.Trips, l.Trips...)
		}
		for _, p := range []int{50, 99} {
			b.ReportMetric(inMilliseconds(rig.Percentile(all.Dials, p)), fmt.Sprintf("dial-p%d-ms", p))
			b.ReportMetric(inMilliseconds(rig.Percentile(all.Trips, p)), fmt.Sprintf("trip-p%d-ms", p))
		}
		for name, u := range b.usages(false) {
			b.ReportMetric(float64(u.Peak)/1e6, name+"-peak-MB")
		}
	}
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const (
	memoryLimit = 4 << 30 // for a server or an agent with stalled streams
	stallPoll   = 100 * time.Millisecond
	stallStill  = 5               // polls in a row that saw no byte move
	stallTime   = 5 * time.Second // after which it is measured while they move
)

// stallStreams opens streams that are not read, and waits until everything between
// the target and the client is full.
func (b *bed) stallStreams(n int) {
	b.call(b.client, "Stall", StreamsArgs{b.front, n}, nil)
	end := time.Now().Add(stallTime)
	var last int64
	still := 0
	b.poll(stallPoll, func() bool {
		var sent int64
		b.call(b.target, "Sent", rig.None{}, &sent)
		if still++; sent != last {
			last, still = sent, 0
		}
		for name, u := range b.usages(false) {
			if u.RSS > memoryLimit {
				b.Fatalf("%s: its memory grew past the limit", name)
			}
		}
		return still >= stallStill || time.Now().After(end)
	})
}

// measureAgents connects many agents beside the first one.
func (b *bed) measureAgents(s sizes) {
	n := min(s.agents, b.row.idleAgents)
	b.measureMemory(n-1, func() {
		b.connect(n - 1)
		b.waitSessions(n)
	})
}

// measureStreams opens many streams beside the first one.
func (b *bed) measureStreams(s sizes) {
	b.measureMemory(s.streams, func() { b.call(b.client, "Idle", StreamsArgs{b.front, s.streams}, nil) })
}

// measureMemory reports what each of n things costs that add makes. They are made
// once, however often the benchmark is to run.
func (b *bed) measureMemory(n int, add func()) {
	b.call(b.client, "Idle", StreamsArgs{b.front, 1}, nil)
	before := b.settledUsages()
	add()
	each := func(bytes int64) float64 { return float64(bytes) / float64(n) / 1024 }
	for name, u := range b.settledUsages() {
		b.ReportMetric(each(u.RSS-before[name].RSS), name+"-rss-KiB")
		if u.Heap > 0 {
			b.ReportMetric(each(u.Heap-before[name].Heap), name+"-heap-KiB")
		}
	}
}

// settledUsages returns the usages once the goroutines of what has just begun or
// ended are gone: as long as the heaps shrink, twice at least.
func (b *bed) settledUsages() (now map[string]rig.Usage) {
	last := int64(-1)
	b.poll(300*time.Millisecond, func() bool {
		now = b.usages(true)
		var sum int64
		for _, u := range now {
			sum += u.Heap
		}
		done := last >= 0 && sum >= last-last/100
		last = sum
		return done
	})
	return now
}
