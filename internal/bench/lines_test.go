package bench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// BenchmarkLines measures lines with all that TCP meets there, in network namespaces: for each the
// rate of one stream and of 32 together, from the target to the client. Of a tunnel, sessions must be
// 1 and ended 0.
func BenchmarkLines(b *testing.B) {
	for _, l := range []line{
		packets(48, 20, 0), packets(48, 100, 0), packets(48, 600, 0), packets(48, 600, 1),
		packets(256, 20, 0), packets(256, 100, 1), packets(256, 300, 3), packets(256, 600, 0),
		packets(2e3, 20, 0), packets(2e3, 100, 0), packets(2e3, 100, 1), packets(2e3, 600, 3),
		packets(20e3, 20, 0), packets(20e3, 100, 0), packets(20e3, 100, 1), packets(20e3, 600, 0),
		packets(100e3, 20, 0), packets(100e3, 20, 1), packets(100e3, 100, 0), packets(100e3, 200, 3),
		packets(1e6, 20, 0), packets(1e6, 20, 1), packets(1e6, 100, 0), packets(1e6, 200, 0),
		withCubic(packets(2e3, 100, 1)), withCubic(packets(20e3, 100, 1)), withCubic(packets(100e3, 20, 1)), withCubic(packets(100e3, 200, 3)),
	} {
		b.Run(fmt.Sprintf("line=%gkbit-%dms-%gpct-%s", l.Kbit, l.RoundTrip.Milliseconds(), l.Loss*100, l.Control), func(b *testing.B) {
			for _, streams := range []int{1, 2, 32} {
				for _, r := range []row{limitRow, causewayRow, wssRow, opensshRow} {
					b.Run(fmt.Sprintf("streams=%d/row=%s", streams, r.name), func(b *testing.B) { l.measureStreams(newBed(b, r, l), streams) })
				}
			}
		})
	}
}

func packets(kbit float64, ms int, percent float64) line {
	return line{RoundTrip: time.Duration(ms) * time.Millisecond, Kbit: kbit, Loss: percent / 100, Control: "bbr"}
}

// withCubic has what most systems have by default. It slows down with each packet that is lost.
func withCubic(l line) line { l.Control = "cubic"; return l }

// measureStreams takes longer where the queue is longer than what TCP needs to fill it, and where few
// frames of 64 KiB would come, as only whole ones count.
func (l line) measureStreams(b *bed, streams int) {
	b.ReportMetric(0, "ns/op")
	queue := time.Duration(float64(l.queueBytes()) / l.bytesPerSecond() * float64(time.Second))
	args := SteadyArgs{Addr: b.front, Streams: streams, After: 2*time.Second + queue + 20*l.RoundTrip, For: max(8*time.Second, 3*queue/2, 40*l.RoundTrip)}
	args.For = max(args.For, min(time.Minute, time.Duration(20*(64<<10)/l.bytesPerSecond()*float64(time.Second))))
	var got Steady
	b.call(b.client, "Steady", args, &got)
	b.ReportMetric(float64(got.Bytes)*8/1e3/got.Took.Seconds(), "kbit/s")
	b.ReportMetric(float64(got.Ended), "ended")
	if b.row.newAgent != nil && b.row.idleAgents > 0 {
		var sessions int
		b.call(b.server, "Sessions", rig.None{}, &sessions)
		b.ReportMetric(float64(sessions), "sessions")
	}
}

type SteadyArgs struct {
	Addr       string
	Streams    int
	After, For time.Duration // what is counted
}

type Steady struct {
	Bytes int64
	Ended int // streams, before the end
	Took  time.Duration
}

// Steady counts what comes over all streams.
func (c *clientRole) Steady(args SteadyArgs, got *Steady) error {
	var n, ended atomic.Int64
	var readers sync.WaitGroup
	defer readers.Wait()
	for range args.Streams {
		conn, err := c.dial(args.Addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write(targetHeader(modeSource, 1<<62)); err != nil {
			return err
		}
		readers.Go(func() {
			buf := make([]byte, endBuffer)
			for {
				got, err := conn.Read(buf)
				n.Add(int64(got))
				if err != nil {
					ended.Add(1)
					return
				}
			}
		})
	}
	time.Sleep(args.After)
	before, began := n.Load(), time.Now()
	time.Sleep(args.For)
	*got = Steady{Bytes: n.Load() - before, Ended: int(ended.Load()), Took: time.Since(began)}
	return nil
}
