package linktest

import (
	"cmp"
	"time"
)

// Config is how a link behaves. The zero value is a plain relay.
type Config struct {
	Up   Direction // from the client to the target
	Down Direction // from the target to the client

	// Refuse resets new connections. Those that are open live on.
	Refuse bool
}

// direction returns Up for 0 and Down for 1.
func (c *Config) direction(at int) *Direction {
	if at == 0 {
		return &c.Up
	}
	return &c.Down
}

// Direction is how one direction of a link behaves.
type Direction struct {
	// Delay is how long a byte is under way, beside what Rate makes it wait.
	// Zero means none.
	Delay time.Duration

	// Rate is how many bytes pass per second. All connections of the link share
	// them. Zero means no limit.
	Rate int

	// Buffer is how many bytes of a connection the link holds, beyond those
	// that are under way at its rate for its delay (without a limit: at 1
	// Gbit/s), before it stops to read. Zero means 64 KiB.
	Buffer int

	// Stall holds back what has not arrived, ends and resets included. When it
	// is cleared all that was held arrives at once. New connections wait as well
	// if it is the way up.
	Stall bool

	// Drop drops what has not arrived, also ends and resets, as a black hole does. A
	// connection that has lost something stays silent in this direction after Drop is
	// cleared: TCP never delivers a stream with a gap. If it is Up, new connections are
	// accepted but reach the target only when Drop is cleared.
	Drop bool

	// CutAfter resets a connection on both sides when so many of its bytes have
	// passed in this direction; no more than these arrive. Zero means never.
	CutAfter int64
}

const (
	defaultBuffer = 64 << 10
	maxChunk      = 16 << 10
	minChunk      = 256

	// unlimited is the rate by which the capacity of a link without a rate is
	// computed: 1 Gbit/s.
	unlimited = 125_000_000
)

// capacity returns how many bytes of a connection the link may hold.
func (d Direction) capacity() int {
	buffer, rate := cmp.Or(max(d.Buffer, 0), defaultBuffer), cmp.Or(max(d.Rate, 0), unlimited)
	return buffer + int(float64(rate)*d.Delay.Seconds())
}

// chunkSize returns how many bytes are passed on in one piece: those of some 5 ms.
func (d Direction) chunkSize() int {
	if d.Rate <= 0 {
		return maxChunk
	}
	return min(max(d.Rate/200, minChunk), maxChunk)
}
