package bench

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// BenchmarkRates asks so many times a second, whether the answers have come or not, and says how long
// an answer takes and what it costs: a dial with a byte each way (short), or 1 KiB each way on one of
// 50 streams that stay open (requests).
func BenchmarkRates(b *testing.B) {
	for _, open := range []int{0, 50} {
		for _, perSecond := range []int{1000, 4000} {
			name := map[bool]string{true: "short", false: "requests"}[open == 0]
			b.Run(fmt.Sprintf("measure=%s/rate=%d", name, perSecond), func(b *testing.B) {
				for _, r := range allRows() {
					if r.newServer != nil {
						b.Run("row="+r.name, func(b *testing.B) { measureRate(newBed(b, r, line{}), open, perSecond) })
					}
				}
			})
		}
	}
}

func measureRate(b *bed, open, perSecond int) {
	b.ReportMetric(0, "ns/op")
	args := RepeatArgs{Addr: b.front, Open: open, PerSecond: perSecond, For: 5 * time.Second}
	if testing.Short() {
		args.For = time.Second / 5
	}
	var got Repeated
	b.call(b.client, "Repeat", RepeatArgs{Addr: b.front, Open: open, PerSecond: perSecond / 10, For: args.For / 5}, &got)
	before := b.usages(false)
	got = Repeated{}
	b.call(b.client, "Repeat", args, &got)
	var cpu time.Duration
	for name, u := range b.usages(false) {
		cpu += u.CPU - before[name].CPU
		b.ReportMetric(float64(u.Peak)/1e6, name+"-peak-MB")
	}
	b.ReportMetric(cpu.Seconds()/got.Within.Seconds(), "cores")
	b.ReportMetric(float64(got.Failed), "failed")
	for _, p := range []int{50, 99} {
		b.ReportMetric(inMilliseconds(rig.Percentile(got.Took, p)), fmt.Sprintf("p%d-ms", p))
	}
}

type RepeatArgs struct {
	Addr            string
	Open, PerSecond int // streams that stay open, 0: a dial each; times
	For             time.Duration
}

type Repeated struct {
	Took   []time.Duration // since each was due
	Failed int
	Within time.Duration // for all
}

const requestSize = 1 << 10

func (c *clientRole) Repeat(args RepeatArgs, got *Repeated) error {
	var free chan net.Conn // streams that wait for no answer
	if args.Open > 0 {
		free = make(chan net.Conn, args.Open)
		for range args.Open {
			conn, err := c.dialEcho(args.Addr)
			if err != nil {
				return err
			}
			defer conn.Close()
			free <- conn
		}
	}
	once := func() error {
		if free == nil {
			conn, err := c.dialEcho(args.Addr)
			if err == nil {
				conn.Close()
			}
			return err
		}
		conn := <-free
		defer func() { free <- conn }()
		request := make([]byte, requestSize)
		if _, err := conn.Write(request); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, request)
		return err
	}
	took := make([]time.Duration, int(args.For.Seconds()*float64(args.PerSecond)))
	began := time.Now()
	var wg sync.WaitGroup
	for i := range took {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(args.PerSecond))
		time.Sleep(time.Until(due))
		wg.Go(func() {
			if once() == nil {
				took[i] = time.Since(due)
			}
		})
	}
	wg.Wait()
	got.Within = time.Since(began)
	got.Took = slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
	got.Failed = len(took) - len(got.Took)
	return nil
}
