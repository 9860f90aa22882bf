package linktest

import "time"

// Config is how a link behaves. The zero value is a plain relay.
type Config struct {
	Up   Direction // from the client to the target
	Down Direction // from the target to the client

	// Refuse resets new connections. Those that are open live on.
	Refuse bool
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

	// Drop swallows what has not arrived, ends and resets included, as a black
	// hole does. A connection that lost something to it stays silent in this
	// direction even when Drop is cleared: a stream with a hole in it would be
	// a fault that TCP does not have. New connections of the way up are
	// accepted, but reach the target only when Drop is cleared.
	Drop bool

	// CutAfter resets a connection on both sides when so many of its bytes have
	// passed in this direction; no more than these arrive. Zero means never.
	CutAfter int64
}

const (
	defaultBuffer = 64 << 10
	maxChunk      = 16 << 10
	minChunk      = 256

	// unlimited is the rate that counts for the bytes under way where there is
	// no limit: 1 Gbit/s.
	unlimited = 125_000_000
)

// room is how many bytes of a connection may be in the link.
func (d Direction) room() int {
	buffer, rate := d.Buffer, d.Rate
	if buffer <= 0 {
		buffer = defaultBuffer
	}
	if rate <= 0 {
		rate = unlimited
	}
	return buffer + int(float64(rate)*d.Delay.Seconds())
}

// chunk is how many bytes pass in one piece: what takes some 5 ms.
func (d Direction) chunk() int {
	if d.Rate <= 0 {
		return maxChunk
	}
	return min(max(d.Rate/200, minChunk), maxChunk)
}

// takes is how long n bytes keep the link busy.
func (d Direction) takes(n int) time.Duration {
	if d.Rate <= 0 {
		return 0
	}
	return time.Duration(float64(n) / float64(d.Rate) * float64(time.Second))
}
