// Package backoff says how long to wait before connecting again, and waits.
package backoff

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Backoff returns random waits between zero and a limit, which grows by Factor with
// each failure. So clients that lose a server at the same moment come back spread over
// the first limit, and over longer ones while the server is away.
//
// The zero value works. A Backoff is not safe for concurrent use. Use one for each
// connection that is made again and again.
type Backoff struct {
	// First is the limit of the first wait. Zero means 4 s: a quarter of the clients
	// come back in each second. A connection that has lived as long has worked, though a
	// balancer may end each one soon: the next wait is a first one.
	First time.Duration

	// Max is the largest limit. Zero means 30 s.
	Max time.Duration

	// Factor multiplies the limit. Zero means 2.
	Factor float64

	// Rand returns a number in [0, n). Nil means math/rand/v2's Int64N.
	Rand func(n int64) int64

	limit time.Duration // of the last wait; zero: there was none
}

// Next returns how long to wait after a connection that lived so long; zero means that
// it was not made. The wait is more than zero and at most the limit.
func (b *Backoff) Next(lived time.Duration) time.Duration {
	first := cmp.Or(max(b.First, 0), 4*time.Second)
	if b.limit == 0 || lived >= first {
		b.limit = first
	} else {
		b.limit = b.nextLimit()
	}
	b.limit = min(b.limit, b.maxLimit())
	random := b.Rand
	if random == nil {
		random = rand.Int64N
	}
	return 1 + time.Duration(random(int64(b.limit)))
}

// nextLimit returns the limit after b.limit.
func (b *Backoff) nextLimit() time.Duration {
	factor := b.Factor
	if factor <= 1 {
		factor = 2
	}
	next := float64(b.limit) * factor
	if next >= float64(b.maxLimit()) { // next may be too large for a Duration
		return b.maxLimit()
	}
	return time.Duration(next)
}

func (b *Backoff) maxLimit() time.Duration { return cmp.Or(max(b.Max, 0), 30*time.Second) }

// Sleep waits for d, and returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
