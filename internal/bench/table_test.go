package main_test

import (
	"testing"
	"time"

	bench "github.com/causewayproject/causeway/internal/bench"
	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

func series(unit string, median float64, runs ...float64) *bench.Series {
	return &bench.Series{Unit: unit, Median: median, Runs: runs}
}

func sample() *bench.Result {
	return &bench.Result{
		Conditions: bench.Conditions{
			Conditions: rig.Conditions{
				Date: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Took: "9s", Cores: 2, CPU: "Fast <CPU>", Memory: "8 kB",
				Kernel: "6.1", Go: "go1.26 linux/amd64",
			},
			Runs: 3, Sizes: bench.Sizes{Bytes: 256e6, Dials: 10, Trips: 20, Agents: 3, Streams: 4},
		},
		Rows: []bench.RowResult{
			{Name: "loopback", About: "direct", Values: map[string]*bench.Series{
				"down1.rate": series("MB/s", 800, 700, 800, 900),
			}},
			{Name: "limit", About: "the limit", Values: map[string]*bench.Series{
				"down1.rate": series("MB/s", 400, 300, 400, 500), "down1.cpu": series("s/GB", 2, 1.9, 2, 2.1),
				"latency.dial.p99": series("ms", 1, 1),
			}},
			{Name: "causeway", About: "ours", Values: map[string]*bench.Series{
				"down1.rate": series("MB/s", 380, 370, 380, 390), "down1.cpu": series("s/GB", 2.5, 2.5, 2.5, 2.5), "up1.rate": series("MB/s", 10, 10),
				"latency.dial.p99": series("ms", 1, 1),
			}},
			{Name: "slow", About: "a peer", Values: map[string]*bench.Series{"latency.dial.p99": series("ms", 70, 70)}},
			{Name: "broken", About: "nothing", Values: map[string]*bench.Series{}},
		},
		Failures: []bench.Failure{{Run: 2, Row: "broken", Measure: "down1", Err: "fell over\n"}},
	}
}

const wantTable = `2026-05-04 03:02 UTC, 3 runs, took 9s
2 cores of Fast <CPU>, 8 kB, Linux 6.1, go1.26 linux/amd64
256 MB a throughput measure, 10 dials, 20 round trips, 3 idle agents at most, 4 idle streams

Throughput, MB/s (more is better; wanders by 30%)
                   1 stream down  8 streams down  1 stream up
  loopback            800 (2.00)               -            -
  limit               400 (1.00)               -            -
  causeway            380 (0.95)               -           10

CPU of server and agent, s/GB (less is better; the steady figure)
                   1 stream down  8 streams down  1 stream up
  limit              2.00 (1.00)               -            -
  causeway           2.50 (1.25)               -            -

Latency, ms (less is better)
                   dial+echo p50  dial+echo p99  round trip p50  round trip p99
  limit                        -          1.000               -               -
  causeway                     -          1.000               -               -
  slow                         -         70.000               -               -

Rows
  loopback        direct
  limit           the limit
  causeway        ours
  slow            a peer
  broken          nothing

Failures
  run 2, broken, down1: fell over
`

func TestTable(t *testing.T) {
	if got := sample().Table(); got != wantTable {
		t.Errorf("got\n%s\nwant\n%s", got, wantTable)
	}
}
