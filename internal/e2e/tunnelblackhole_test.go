package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// attempt is a dial under load, with a byte there and back.
type attempt struct {
	began time.Time
	took  time.Duration
	err   error
}

// patience is how long a dial under load may take before it counts as stuck.
const patience = 20 * time.Second

// load dials a hundred times a second until ctx ends, and returns
// what came of it when the last has ended.
func (h *hub) load(ctx context.Context) []attempt {
	var (
		mu       sync.Mutex // guards attempts
		attempts []attempt
		dials    sync.WaitGroup
	)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		dials.Go(func() {
			a := attempt{began: time.Now()}
			a.err = h.dialEcho(context.WithoutCancel(ctx), patience)
			a.took = time.Since(a.began)
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, a)
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	dials.Wait()
	return attempts
}

// A hundred dials a second go through two agents, and the flow of one of them
// goes into a black hole: all dials end on the other, and soon.
func TestTunnelBlackhole(t *testing.T) {
	t.Parallel()
	p, h := pathHub(t, &tunnel.Server{})
	var dead tunnel.SessionInfo
	for range 2 {
		startAgent(t, p.Far, agentInput{Invitation: h.invite(pathAddress), Allow: targets})
		dead = h.session(20 * time.Second)
	}
	held := holdStreams(t, h, 20)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+noticed)
	defer cancel()
	loaded := make(chan []attempt, 1)
	go func() { loaded <- h.load(ctx) }()
	wait(t, 2*time.Second)
	breakFlow(t, p, dead, "drop", fromAgent, toAgent)
	began := time.Now()
	err := next(t, h.disconnected, noticed, "the dead session's end")
	t.Logf("after %v the session ends: %v", time.Since(began), err)
	wantFast(t, next(t, loaded, 2*noticed, "the end of all dials"), began)
	held.wantCutOrAlive(t)
}

// wantFast wants all dials but those of the moment of the fault to have worked,
// none later than 15 s.
func wantFast(t *testing.T, attempts []attempt, fault time.Time) {
	t.Helper()
	var before, after []time.Duration
	var slowUntil time.Duration // since the fault
	failed, stuck, between := 0, 0, 0
	for _, a := range attempts {
		if a.began.Before(fault) && !a.began.Add(a.took).Before(fault) {
			between++ // it may be connected already, and ends with its session
			continue
		}
		if a.err != nil {
			failed++
			t.Errorf("%v after the fault: %v: %v", a.began.Sub(fault), a.took, a.err)
		}
		if a.took >= patience {
			stuck++
		}
		if a.began.Add(a.took).Before(fault) {
			before = append(before, a.took)
			continue
		}
		after = append(after, a.took)
		if a.took > time.Second {
			slowUntil = max(slowUntil, a.began.Sub(fault))
		}
	}
	if len(before) == 0 || len(after) == 0 {
		t.Fatalf("%d dials before the fault and %d after", len(before), len(after))
	}
	t.Logf("dial and echo before: %s; after: %s; the last that took more than 1 s began %v after the fault; %d failed, %d stuck, %d were open at the fault",
		spread(before), spread(after), slowUntil, failed, stuck, between)
	if slowest := slices.Max(after); slowest > 15*time.Second {
		t.Errorf("a dial took %v, want 15 s at most", slowest)
	}
}

// spread describes durations, which it sorts.
func spread(d []time.Duration) string {
	slices.Sort(d)
	return fmt.Sprintf("n=%d p50=%v p99=%v max=%v", len(d), d[len(d)/2], d[len(d)*99/100], d[len(d)-1])
}

// held are streams that were open before a fault, and what each one's Read
// returned since.
type held struct {
	conns []net.Conn
	ended chan int // index of each that was cut
	errs  []error
}

func holdStreams(t *testing.T, h *hub, count int) *held {
	t.Helper()
	hold := &held{ended: make(chan int, count), errs: make([]error, count)}
	var reading sync.WaitGroup
	t.Cleanup(func() {
		for _, conn := range hold.conns {
			conn.Close()
		}
		reading.Wait()
	})
	for i := range count {
		conn, err := h.dial(t.Context(), echoTarget)
		if err != nil {
			t.Fatal(err)
		}
		hold.conns = append(hold.conns, conn)
		reading.Go(func() {
			_, hold.errs[i] = io.ReadFull(conn, make([]byte, 1))
			hold.ended <- i
		})
	}
	return hold
}

// wantCutOrAlive wants each stream to be cut or to be alive, some of each.
func (hold *held) wantCutOrAlive(t *testing.T) {
	t.Helper()
	cut := map[int]bool{}
	for len(hold.ended) > 0 {
		i := <-hold.ended
		cut[i] = true
		if !isCut(hold.errs[i]) {
			t.Errorf("a stream of the dead session ended with %v, want a reset", hold.errs[i])
		}
	}
	alive := 0
	for i, conn := range hold.conns {
		if cut[i] {
			continue
		}
		if _, err := conn.Write([]byte{'x'}); err != nil {
			t.Error(err)
			continue
		}
		alive++
	}
	for range alive {
		if i := next(t, hold.ended, slack, "an echo on a stream that was not cut"); hold.errs[i] != nil {
			t.Errorf("a stream of the live session ended: %v", hold.errs[i])
		}
	}
	t.Logf("of the streams that were open %d were cut and %d live", len(cut), alive)
	if len(cut) == 0 || alive == 0 {
		t.Error("want some of both")
	}
}
