package backoff_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
)

const (
	s  = time.Second
	ms = time.Millisecond
	us = time.Microsecond
)

func TestNext(t *testing.T) {
	least := func(n int64) int64 { return 0 }
	half := func(n int64) int64 { return n/2 - 1 }
	most := func(n int64) int64 { return n - 1 }
	tests := []struct {
		name  string
		b     backoff.Backoff
		lived []time.Duration
		want  []time.Duration
	}{
		{"defaults", backoff.Backoff{Rand: most}, make([]time.Duration, 6), []time.Duration{4 * s, 8 * s, 16 * s, 30 * s, 30 * s, 30 * s}},
		{"half", backoff.Backoff{Rand: half}, make([]time.Duration, 2), []time.Duration{2 * s, 4 * s}},
		{"never nothing", backoff.Backoff{Rand: least}, make([]time.Duration, 3), []time.Duration{1, 1, 1}},
		{"it worked", backoff.Backoff{Rand: most}, []time.Duration{time.Hour, 0, 0, 4 * s, 0},
			[]time.Duration{4 * s, 8 * s, 16 * s, 4 * s, 8 * s}},
		{"it did not", backoff.Backoff{Rand: most}, []time.Duration{0, 4*s - 1, 4*s - 1}, []time.Duration{4 * s, 8 * s, 16 * s}},
		{"own", backoff.Backoff{First: s, Max: 3 * s, Rand: most}, []time.Duration{0, 0, 0, s - 1, s},
			[]time.Duration{s, 2 * s, 3 * s, 3 * s, s}},
		{"slower", backoff.Backoff{First: s, Max: 2 * s, Factor: 1.25, Rand: most}, make([]time.Duration, 6),
			[]time.Duration{s, 1250 * ms, 1562500 * us, 1953125 * us, 2 * s, 2 * s}},
		{"no slower", backoff.Backoff{First: s, Factor: 1, Rand: most}, make([]time.Duration, 2), []time.Duration{s, 2 * s}},
		{"first above max", backoff.Backoff{First: 9 * s, Max: 2 * s, Rand: most}, make([]time.Duration, 2), []time.Duration{2 * s, 2 * s}},
		{"negative", backoff.Backoff{First: -1, Max: -1, Rand: most}, make([]time.Duration, 2), []time.Duration{4 * s, 8 * s}},
		{"the longest", backoff.Backoff{First: math.MaxInt64/2 + 1, Max: math.MaxInt64, Rand: half},
			make([]time.Duration, 3), []time.Duration{1 << 61, 1<<62 - 1, 1<<62 - 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []time.Duration
			for _, lived := range tt.lived {
				got = append(got, tt.b.Next(lived))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestZeroValueIsRandom(t *testing.T) {
	var a, b backoff.Backoff
	if x, y := a.Next(0), b.Next(0); x == y || max(x, y) > 4*s {
		t.Errorf("got %v and %v, want two waits of up to 4 s", x, y)
	}
}

// TestHerd: a thousand lose one server at the same moment, and come back to it
// after it was down for some time.
func TestHerd(t *testing.T) {
	for _, tt := range []struct {
		down    time.Duration
		busiest int // what comes within one second, at most
		last    time.Duration
	}{
		{0, 290, 4 * s},
		{10 * s, 150, 40 * s},
		{time.Minute, 100, 90 * s},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		var arrivals []time.Duration
		for range 1000 {
			b := backoff.Backoff{Rand: rng.Int64N}
			at := b.Next(time.Hour)
			for at < tt.down {
				at += b.Next(0)
			}
			arrivals = append(arrivals, at)
		}
		slices.Sort(arrivals)
		busiest := 0
		for i, at := range arrivals {
			n, _ := slices.BinarySearch(arrivals, at+s)
			busiest = max(busiest, n-i)
		}
		t.Logf("down for %v: the busiest second has %d, the last comes %v after", tt.down, busiest, arrivals[999]-tt.down)
		if busiest > tt.busiest || arrivals[999] > tt.last {
			t.Errorf("got %d in one second and the last at %v, want at most %d and %v", busiest, arrivals[999], tt.busiest, tt.last)
		}
	}
}
