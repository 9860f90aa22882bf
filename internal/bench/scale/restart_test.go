package scale

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// A restart is what happened when replicas went and came back.
type restart struct {
	what   string
	killed bool          // without notice; else they drained
	left   time.Duration // until their processes had ended
	back   time.Duration // until all were ready again
	one    time.Duration // until each agent had a session again with a replica that takes streams
	two    time.Duration // and sessions with two
	least  int           // how many agents had a session when the fewest had
	shares []int         // sessions of each replica at the end
	dials  Dials
}

func (r *restart) String() string {
	line := fmt.Sprintf("%s: left after %v, ready after %v, all agents with a session after %v (least %d) and with two after %v, sessions %v",
		r.what, roundForLog(r.left), roundForLog(r.back), roundForLog(r.one), r.least, roundForLog(r.two), r.shares)
	if r.dials.count() > 0 {
		line += fmt.Sprintf("; %v", r.dials)
	}
	return line
}

// restartReplicas ends replicas, all at once, and starts them again, while the others
// dial at a rate.
func (f *fleet) restartReplicas(what string, kill bool, rate float64, which ...*server) *restart {
	r := &restart{what: what, killed: kill, least: len(f.places)}
	f.collectDials() // what there was before
	m := f.startMeter()
	f.dialAt(rate)
	began := time.Now()
	for _, s := range which {
		f.gone = append(f.gone, s.name)
		f.setReady(s, false)
	}
	first := f.countSessions() // before anything can come back
	r.note(first, began)
	for _, s := range which {
		if first.Sessions[s.name] > 0 || len(which) == len(f.replicas) && first.One > 0 {
			f.Errorf("%s: got %+v at first, want no session counted whose replica is to go", what, first)
		}
	}
	watched := make(chan error, 1)
	go func() {
		watched <- rig.Poll(f.Context(), f.poll, func() (bool, error) {
			c, err := f.takeCensus(f.Context())
			r.note(c, began)
			return c.Two == c.Agents, err
		})
	}()
	f.replaceReplicas(r, began, rate, which)
	if err := <-watched; err != nil {
		f.Fatal(err)
	}
	load := m.read()
	f.sleep(f.settle) // the dials go on
	f.endRestart(r, len(which) < len(f.replicas))
	f.Logf("%s; %s", r, load)
	if r.two <= 0 || r.one <= 0 || r.one > r.two || r.back < r.left {
		f.Errorf("%s: got %+v, want times in their order", what, r)
	}
	return r
}

// note takes a count of the agents' sessions.
func (r *restart) note(c Census, began time.Time) {
	at := time.Since(began)
	if r.least = min(r.least, c.One); c.One < c.Agents {
		r.one = 0
	} else if r.one == 0 {
		r.one = at
	}
	r.two = at
}

// replaceReplicas ends replicas and starts them again.
func (f *fleet) replaceReplicas(r *restart, began time.Time, rate float64, which []*server) {
	var wg sync.WaitGroup
	results, errs := make([]Dials, len(which)), make([]error, len(which))
	for i, s := range which {
		wg.Go(func() {
			if r.killed {
				s.process.Kill()
				return
			}
			errs[i] = errors.Join(s.process.Call(f.Context(), "Leave", rig.None{}, &results[i]), s.process.Stop())
		})
	}
	f.dialAt(rate) // the others take over
	wg.Wait()
	r.left = time.Since(began)
	if err := errors.Join(errs...); err != nil {
		f.Fatal(err)
	}
	for i, s := range which {
		s.process = nil
		r.dials.add(results[i])
	}
	for _, s := range which {
		f.startReplica(s)
	}
	for _, s := range which {
		f.waitJoined(s)
	}
	r.back = time.Since(began)
	f.dialAt(rate)
}

// endRestart ends the dials, and notes what is now.
func (f *fleet) endRestart(r *restart, dialed bool) {
	if dialed {
		f.waitDials(&r.dials, 1)
	}
	f.dialAt(0)
	r.dials.add(f.collectDials())
	f.waitSessions()
	c := f.countSessions()
	for _, s := range f.replicas {
		r.shares = append(r.shares, c.Sessions[s.name])
	}
}
