package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
)

// A line is what is between server and agent: a round trip, and a rate each way.
type line struct {
	RoundTrip time.Duration
	Mbit      int // per second; zero: there is no line
}

// longMeasure is all of them, long-1000-50 that of 1000 Mbit/s and 50 ms.
const longMeasure = "long"

// longLines are those of the measure long.
func longLines() []line {
	var all []line
	for _, mbit := range lineRates {
		for _, ms := range lineTrips {
			all = append(all, line{time.Duration(ms) * time.Millisecond, mbit})
		}
	}
	return all
}

var (
	lineRates = []int{100, 1000, 10_000} // Mbit/s
	lineTrips = []int{10, 50, 100, 200}  // ms
)

func (l line) config() linktest.Config {
	rate := l.Mbit * 1_000_000 / 8
	// A buffer that outlasts the scheduler's hiccups, as a real line's do.
	way := linktest.Direction{Delay: l.RoundTrip / 2, Rate: rate, Buffer: max(64<<10, rate/200)}
	return linktest.Config{Up: way, Down: way}
}

func (l line) name() string {
	return fmt.Sprintf("%s-%d-%d", longMeasure, l.Mbit, l.RoundTrip.Milliseconds())
}

func (l line) metricKey(way string) string {
	return l.name() + "." + way
}

func longMeasures() []measure {
	var m []measure
	for _, l := range longLines() {
		m = append(m, measure{name: l.name(), run: l.measureRates, line: l, fits: func(r row) bool { return r.newServer != nil }})
	}
	return m
}

// measureRates takes the rate each way, over one stream in its second second.
func (l line) measureRates(ctx context.Context, b *bed, _ sizes) (map[string]float64, error) {
	m := map[string]float64{}
	for _, way := range []string{"down", "up"} {
		r, err := b.client.call(ctx, request{Op: "rate-" + way, Addr: b.front})
		if err != nil {
			return nil, err
		}
		m[l.metricKey(way)] = float64(r.N) / 1e6
	}
	return m, nil
}

func longSections() []section {
	var s []section
	for _, way := range []string{"down", "up"} {
		for _, mbit := range lineRates {
			one := section{
				title: fmt.Sprintf("1 stream %s over a line of %d Mbit/s, MB/s", way, mbit),
				note:  "by its round trip, in the second second; more is better", ratio: true,
			}
			for _, ms := range lineTrips {
				l := line{time.Duration(ms) * time.Millisecond, mbit}
				one.metrics = append(one.metrics, metric{l.metricKey(way), fmt.Sprintf("%d ms", ms), "MB/s", "%.1f"})
			}
			s = append(s, one)
		}
	}
	return s
}

// linkedAddress returns where addr is reached over the line, if there is one.
func (b *bed) linkedAddress(ctx context.Context, addr string) (string, error) {
	if b.line.Mbit == 0 || addr == "" {
		return addr, nil
	}
	if b.link == nil {
		var err error
		if b.link, err = startProcess("link"); err != nil {
			return "", err
		}
	}
	r, err := b.link.call(ctx, request{Op: "start", Addr: addr, Line: b.line})
	return r.Addr, err
}

// A linkRole is the line.
type linkRole struct{ link *linktest.Link }

func (r *linkRole) handleRequest(_ context.Context, q request) (reply, error) {
	if q.Op != "start" {
		return reply{}, errOp
	}
	if r.link == nil {
		r.link = linktest.New(q.Line.config())
	}
	addr, err := r.link.Listen(q.Addr)
	return reply{Addr: addr}, err
}

func (r *linkRole) Close() error {
	if r.link == nil {
		return nil
	}
	return r.link.Close()
}

// rateAfter is when a rate is taken, and for how long.
const rateAfter = time.Second

// measureRate returns the bytes that arrive in the second after rateAfter.
func (c *clientRole) measureRate(ctx context.Context, q request) (int64, error) {
	conn, err := c.dial(ctx, q.Addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if q.Op == "rate-down" {
		if _, err := conn.Write(targetHeader(modeSource, 1<<62)); err != nil {
			return 0, err
		}
		return meterRate(conn)
	}
	if _, err := conn.Write(targetHeader(modeMeter, 0)); err != nil {
		return 0, err
	}
	go func() { // until the connection is closed
		buf := make([]byte, endBuffer)
		for {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	}()
	var answer [8]byte
	_, err = io.ReadFull(conn, answer[:])
	return int64(binary.BigEndian.Uint64(answer[:])), err
}

// meterRate returns how many bytes a second come after the first one.
func meterRate(conn net.Conn) (int64, error) {
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
				return int64(float64(n) / took.Seconds()), nil
			}
		}
	}
}
