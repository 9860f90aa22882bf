package bench

import (
	"encoding/binary"
	"fmt"
	"io"

	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
	"github.com/causewayproject/causeway/internal/linktest"
)

// A line is what is between server and agent: a round trip, and a rate each way.
type line struct {
	RoundTrip time.Duration
	Mbit      int     // per second, of a linktest link; zero: there is none
	Kbit      float64 // per second, of a path; zero: there is none
	Loss      float64 // of a path's packets
	Control   string  // of congestion, at both ends of a path
}

// BenchmarkLong takes the rate each way, over one stream in its second second.
func BenchmarkLong(b *testing.B) {
	for _, mbit := range []int{100, 1000, 10_000} {
		for _, ms := range []int{10, 50, 100, 200} {
			l := line{RoundTrip: time.Duration(ms) * time.Millisecond, Mbit: mbit}
			b.Run(fmt.Sprintf("line=%dMbit-%dms", mbit, ms), func(b *testing.B) {
				for _, r := range allRows() {
					if r.newServer != nil {
						b.Run("row="+r.name, func(b *testing.B) { l.measureRates(newBed(b, r, l)) })
					}
				}
			})
		}
	}
}

func (l line) measureRates(b *bed) {
	b.ReportMetric(0, "ns/op")
	for _, up := range []bool{false, true} {
		var sum, rate float64
		for range b.N {
			b.call(b.client, "Rate", RateArgs{b.front, up}, &rate)
			sum += rate
		}
		b.ReportMetric(sum/float64(b.N)/1e6, map[bool]string{false: "down-MB/s", true: "up-MB/s"}[up])
	}
}

func (l line) config() linktest.Config {
	rate := l.Mbit * 1_000_000 / 8
	// A buffer that outlasts the scheduler's hiccups, as a real line's do.
	way := linktest.Direction{Delay: l.RoundTrip / 2, Rate: rate, Buffer: max(64<<10, rate/200)}
	return linktest.Config{Up: way, Down: way}
}

// linkedAddress returns where addr is reached over the line, if there is one.
func (b *bed) linkedAddress(addr string) string {
	if b.line.Mbit == 0 || addr == "" {
		return addr
	}
	if b.link == nil {
		b.link = b.startProcess("link")
	}
	b.call(b.link, "Start", LinkArgs{addr, b.line}, &addr)
	return addr
}

// A linkRole is the line.
type linkRole struct {
	rig.Process
	link *linktest.Link
}

type LinkArgs struct {
	Addr string
	Line line
}

func (r *linkRole) Start(args LinkArgs, addr *string) (err error) {
	if r.link == nil {
		r.link = linktest.New(args.Line.config())
	}
	*addr, err = r.link.Listen(args.Addr)
	return err
}

func (r *linkRole) Close() error {
	if r.link == nil {
		return nil
	}
	return r.link.Close()
}

// rateAfter is when a rate is taken, and for how long.
const rateAfter = time.Second

type RateArgs struct {
	Addr string
	Up   bool
}

// Rate returns the bytes that arrive in the second after rateAfter.
func (c *clientRole) Rate(args RateArgs, rate *float64) error {
	conn, err := c.dial(args.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if !args.Up {
		if _, err := conn.Write(targetHeader(modeSource, 1<<62)); err != nil {
			return err
		}
		*rate, err = meterRate(conn)
		return err
	}
	if _, err := conn.Write(targetHeader(modeMeter, 0)); err != nil {
		return err
	}
	go func() { // until the connection is closed
		buf := make([]byte, endBuffer)
		for {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	}()
	return binary.Read(conn, binary.BigEndian, rate)
}

// meterRate returns how many bytes a second come after the first one.
func meterRate(conn io.Reader) (float64, error) {
	buf := make([]byte, endBuffer)
	began := time.Now()
	var first time.Duration
	var n int64
	for {
		got, err := conn.Read(buf)
		if err != nil {
			return 0, err
		}
		switch now := time.Since(began); {
		case now < rateAfter:
		case first == 0:
			first = now
		default:
			n += int64(got)
			if took := now - first; took >= rateAfter {
				return float64(n) / took.Seconds(), nil
			}
		}
	}
}
