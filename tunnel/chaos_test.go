package tunnel_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
)

// The tests of this file run for a few seconds, or for as long as CAUSEWAY_CHAOS
// (a duration) and CAUSEWAY_CHAOS_CONNS (a count) say; see .ci/chaos.
func chaosFor(t *testing.T) time.Duration {
	text := os.Getenv("CAUSEWAY_CHAOS")
	if text == "" {
		return 2 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CAUSEWAY_CHAOS: %v", err)
	}
	return d
}

func chaosConns(t *testing.T) int {
	text := os.Getenv("CAUSEWAY_CHAOS_CONNS")
	if text == "" {
		return 600
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("CAUSEWAY_CHAOS_CONNS: %v", err)
	}
	return n
}

// TestChaos lets links break in every way while clients check each byte. No
// dial and no transfer may hang, no cut may look like an end, and afterwards
// all is as it was before.
func TestChaos(t *testing.T) {
	w := newWorld(t, true)
	w.run(500, true) // what is allocated once
	before := w.calm()
	ctx, cancel := context.WithTimeout(t.Context(), chaosFor(t))
	defer cancel()
	var wg sync.WaitGroup
	for _, link := range w.links {
		wg.Go(func() { storm(ctx, link) })
	}
	for range 24 {
		wg.Go(func() {
			for ctx.Err() == nil {
				w.transfer(true)
			}
		})
	}
	wg.Wait()
	storms := w.figures()
	w.reconnected()
	w.counts = counts{}
	w.run(200, false)
	if failed := w.counts.noDial.Load() + w.counts.cut.Load(); failed > 0 {
		t.Errorf("after the storm %d of 200 transfers failed", failed)
	}
	after := w.calmAs(before)
	after.check(t, before)
	t.Logf("storm: %s\nbefore: %s\nafter: %s", storms, before, after)
}

// TestManyConnections is without faults of the network: clients and targets
// that break off at random.
func TestManyConnections(t *testing.T) {
	w := newWorld(t, false)
	w.run(500, true)
	before := w.calm()
	w.run(chaosConns(t), true)
	after := w.calmAs(before)
	after.check(t, before)
	if n := w.counts.noDial.Load(); n > 0 {
		t.Errorf("%d dials failed", n)
	}
	t.Logf("%s\nbefore: %s\nafter: %s", w.figures(), before, after)
}

// storm breaks a link again and again, and leaves it whole.
func storm(ctx context.Context, link *linktest.Link) {
	for ctx.Err() == nil {
		sleepFor(ctx, 10+rand.IntN(500))
		var c linktest.Config
		lasts := rand.IntN(1000)
		switch rand.IntN(9) {
		case 0:
			link.Reset()
		case 1:
			link.HalfOpen(linktest.Client)
		case 2:
			link.HalfOpen(linktest.Target)
		case 3:
			c.Up.Stall, c.Down.Stall = rand.IntN(2) == 0, true
			lasts *= 5
		case 4:
			c.Up.Drop, c.Down.Drop = true, rand.IntN(2) == 0
			lasts *= 5
		case 5:
			c.Down.CutAfter = 1 + rand.Int64N(1<<20)
		case 6:
			c.Up.CutAfter = 1 + rand.Int64N(1<<20)
		case 7:
			c.Up.Delay, c.Down.Delay = 20*time.Millisecond, 30*time.Millisecond
		case 8:
			c.Refuse = true
			link.Reset()
		}
		link.Set(c)
		sleepFor(ctx, lasts)
		link.Set(linktest.Config{})
	}
}

func sleepFor(ctx context.Context, ms int) {
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
	case <-ctx.Done():
	}
}
