package limits

import (
	"math"
	"sync"
	"time"
)

// day counts the bytes of a day. Used bytes come back evenly over a day. A new limit does
// not change that: bytes above the new limit come back as fast as under the old one.
type day struct {
	mu    sync.Mutex // guards the fields below
	limit float64    // bytes a day; zero: no limit, and nothing counts
	used  float64
	pace  float64   // bytes a day that come back while used is above limit
	at    time.Time // when used was right
}

func (d *day) set(now time.Time, limit int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passLocked(now)
	d.limit = float64(limit)
	d.pace = max(d.pace, d.limit)
}

// passLocked takes what has come back since off used.
func (d *day) passLocked(now time.Time) {
	passed := max(0, now.Sub(d.at).Hours()/24)
	if now.After(d.at) {
		d.at = now
	}
	if over := d.used - d.limit; over > 0 {
		if over > d.pace*passed {
			d.used -= d.pace * passed
			return
		}
		d.used = d.limit
		passed -= over / d.pace
	}
	d.pace = d.limit
	d.used = max(0, d.used-d.limit*passed)
}

// allow takes n bytes if they are there.
func (d *day) allow(now time.Time, n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit == 0 {
		return true
	}
	d.passLocked(now)
	if d.used+float64(n) > d.limit {
		return false
	}
	d.used += float64(n)
	return true
}

// refund gives n bytes back that allow has taken.
func (d *day) refund(now time.Time, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit == 0 {
		return
	}
	d.passLocked(now)
	d.used = max(0, d.used-float64(n))
}

// wait returns when there will be n bytes; zero if there are.
func (d *day) wait(now time.Time, n float64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passLocked(now)
	missing := d.used + min(n, d.limit) - d.limit
	if d.limit == 0 || missing <= 0 {
		return 0
	}
	over := max(0, d.used-d.limit)
	days := (missing - over) / d.limit
	if over > 0 {
		days += over / d.pace
	}
	return time.Duration(math.Ceil(days*24*float64(time.Hour/time.Millisecond))) * time.Millisecond
}

// isUnused reports whether a new day would be the same.
func (d *day) isUnused(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passLocked(now)
	return d.used == 0
}
