package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
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
	result Dials
}

// Dials are the results of dials.
type Dials struct {
	Failed    map[string]int  `json:",omitempty"` // by the error's code
	Examples  []string        `json:",omitempty"` // some errors
	Forwarded int             // by another replica
	Took      []time.Duration `json:",omitempty"` // only dials that did not fail
}

func (d Dials) count() int { return len(d.Took) + d.failed() }

func (d Dials) failed() (n int) {
	for _, m := range d.Failed {
		n += m
	}
	return n
}

func (d *Dials) add(e Dials) {
	d.Forwarded += e.Forwarded
	d.Took = append(d.Took, e.Took...)
	for code, n := range e.Failed {
		if d.Failed == nil {
			d.Failed = map[string]int{}
		}
		d.Failed[code] += n
	}
	const maxExamples = 5
	d.Examples = append(d.Examples, e.Examples[:min(len(e.Examples), maxExamples-len(d.Examples))]...)
}

func (d Dials) String() string {
	line := fmt.Sprintf("%d dials, %d forwarded, %d failed; p50 %v, p99 %v", d.count(), d.Forwarded, d.failed(),
		roundForLog(rig.Percentile(d.Took, 50)), roundForLog(rig.Percentile(d.Took, 99)))
	if d.failed() > 0 {
		line += fmt.Sprintf("; failed: %v, such as %q", d.Failed, d.Examples)
	}
	return line
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
func (l *load) takeResult() Dials {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.under > 0 && l.rate == 0 {
		l.idle.Wait()
	}
	d := l.result
	l.result = Dials{}
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
		l.result.add(Dials{Failed: map[string]int{code: 1}, Examples: []string{err.Error()}})
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

const answerTimeout = 30 * time.Second

// exchangeByte has the target answer a byte.
func exchangeByte(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(answerTimeout))
	return rig.Echo(conn, 7)
}
