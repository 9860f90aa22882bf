// Package backoff says how long to wait before connecting again.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Backoff gives waits that are uniform between nothing and a limit, which
// doubles, or grows by Factor, with each failure. So those who lost one server at the same moment
// come back spread over the first limit, and ever thinner while it stays away.
//
// The zero value works. A Backoff is not safe for concurrent use, and belongs
// to one connection that is made again and again.
type Backoff struct {
	// First is the limit of the first wait. Zero means 4 s: of any number of
	// clients about a quarter come back in the same second.
	First time.Duration

	// Max is what the limit grows to. Zero means 30 s.
	Max time.Duration

	// Factor is what the limit grows by. Zero means 2.
	Factor float64

	// Stable is how long a connection has to live for the next wait to be a
	// first one. Zero means a minute.
	Stable time.Duration

	// Rand returns a number in [0, n). Nil means math/rand/v2's Int64N.
	Rand func(n int64) int64

	limit time.Duration // of the wait before; zero if there was none
}

// Next returns how long to wait after a connection that lived so long; zero
// stands for one that was not made. The wait is more than zero and at most the
// limit.
func (b *Backoff) Next(lived time.Duration) time.Duration {
	switch {
	case b.limit == 0, lived >= orDefault(b.Stable, time.Minute):
		b.limit = orDefault(b.First, 4*time.Second)
	default:
		b.limit = b.grown()
	}
	b.limit = min(b.limit, b.max())
	random := b.Rand
	if random == nil {
		random = rand.Int64N
	}
	return 1 + time.Duration(random(int64(b.limit)))
}

// grown is the next limit.
func (b *Backoff) grown() time.Duration {
	factor := b.Factor
	if factor <= 1 {
		factor = 2
	}
	next := float64(b.limit) * factor
	if next >= float64(b.max()) { // which a Duration may not hold
		return b.max()
	}
	return time.Duration(next)
}

func (b *Backoff) max() time.Duration { return orDefault(b.Max, 30*time.Second) }

func orDefault(d, byDefault time.Duration) time.Duration {
	if d <= 0 {
		return byDefault
	}
	return d
}
