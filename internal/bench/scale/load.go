package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// load dials at a rate, whether or not earlier dials have ended.
type load struct {
	server *tunnel.Server
	wake   chan struct{} // holds one: the rate is another
	done   chan struct{}
	ended  chan struct{}

	mu     sync.Mutex // guards the fields below
	idle   *sync.Cond // under way is zero
	places []place
	rate   float64
	began  time.Time // when the rate's schedule began
	begun  int       // since began
	under  int       // way
	result dials
}

// dials are the results of dials.
type dials struct {
	Failed    map[string]int  `json:",omitempty"` // by the error's code
	Examples  []string        `json:",omitempty"` // some errors
	Forwarded int             // by another replica
	Took      []time.Duration `json:",omitempty"` // only dials that did not fail
}

func (d dials) failed() (n int) {
	for _, m := range d.Failed {
		n += m
	}
	return n
}

func (d *dials) add(e dials) {
	d.Forwarded += e.Forwarded
	d.Took = append(d.Took, e.Took...)
	for code, n := range e.Failed {
		if d.Failed == nil {
			d.Failed = map[string]int{}
		}
		d.Failed[code] += n
	}
	for _, text := range e.Examples {
		d.keepExample(text)
	}
}

const maxExamples = 5

func (d *dials) keepExample(text string) {
	if len(d.Examples) < maxExamples {
		d.Examples = append(d.Examples, text)
	}
}

// newLoad returns one whose rate is zero. The caller closes it.
func newLoad(s *tunnel.Server) *load {
	l := &load{server: s, wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{})}
	l.idle = sync.NewCond(&l.mu)
	go l.run()
	return l
}

func (l *load) setPlaces(places []place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places = places
}

func (l *load) setRate(rate float64) {
	l.mu.Lock()
	l.rate, l.began, l.begun = rate, time.Now(), 0
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// takeResult waits for what is under way; dials that begin meanwhile count too.
func (l *load) takeResult() dials {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.under > 0 && l.rate == 0 {
		l.idle.Wait()
	}
	d := l.result
	l.result = dials{}
	return d
}

// run begins what is due, until done. While nothing is, it costs nothing.
func (l *load) run() {
	defer close(l.ended)
	tick := time.NewTicker(loadTick)
	defer tick.Stop()
	for {
		l.mu.Lock()
		idle := l.rate == 0
		l.mu.Unlock()
		ticks := tick.C
		if idle {
			tick.Stop()
			ticks = nil
		}
		select {
		case <-l.done:
			return
		case <-l.wake:
			tick.Reset(loadTick)
		case <-ticks:
			for _, p := range l.dueDials() {
				go l.dialOnce(p)
			}
		}
	}
}

const loadTick = 2 * time.Millisecond

// dueDials returns where to dial now.
func (l *load) dueDials() (places []place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) == 0 {
		return nil
	}
	for want := int(l.rate * time.Since(l.began).Seconds()); l.begun < want; l.begun++ {
		places = append(places, l.places[rand.IntN(len(l.places))])
		l.under++
	}
	return places
}

// dialOnce dials, has the target answer, and notes how it went.
func (l *load) dialOnce(p place) {
	began := time.Now()
	conn, err := l.server.Dialer(p.Cluster).DialContext(context.Background(), "tcp", p.Target)
	took := time.Since(began)
	code := codeOf(err)
	if err == nil {
		if err = exchangeByte(conn); err != nil {
			code = "no answer"
		}
		conn.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.result.Took = append(l.result.Took, took)
	} else {
		l.result.add(dials{Failed: map[string]int{code: 1}, Examples: []string{err.Error()}})
	}
	if l.under--; l.under == 0 {
		l.idle.Broadcast()
	}
}

func codeOf(err error) string {
	var e *tunnel.Error
	if errors.As(err, &e) {
		return e.Code.String()
	}
	return "other"
}

// close waits for what is under way.
func (l *load) close() {
	close(l.done)
	<-l.ended
	l.setRate(0)
	l.takeResult()
}
