package tunnel

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/turns"
)

const (
	// helloTimeout is how long a client may take for its ClientHello.
	helloTimeout = 5 * time.Second
	// answerTime is how long a client that has sent its ClientHello may take to
	// answer before it makes room for another one of its own source.
	answerTime = 250 * time.Millisecond

	// A handshake in which the client sends more than shortHandshake is a long
	// one, for a chain of certificates, say: maxLong are under way at once, each
	// for longTimeout at most. More than maxHandshake is refused. What a client
	// sends takes several times its size here, until it has proven who it is.
	// maxSpoken is of what it says then, to enrol say.
	shortHandshake = 4 << 10
	maxHandshake   = 16 << 10
	maxSpoken      = maxEnroll + 2<<10 // after the handshake
	maxLong        = 32
	longTimeout    = 2 * time.Second

	// waitingPerPlace is how many may wait for each place.
	waitingPerPlace = 4
	// maxUpgrades is how many connections of a WebSocket listener may be in
	// their HTTP request.
	maxUpgrades = 1000
)

var (
	errCrowded   = errors.New("too many carriers in their handshake")
	errDisplaced = fmt.Errorf("%w: it made room for another one", errCrowded)
)

// admission is where carriers are until they have proven who they are: at most
// max at once. When it is full, a new one takes the place of another. Each source
// keeps as many as any other, so that one address can't keep the others out;
// and within a source the oldest goes that has sent nothing, so that an agent
// gets in beside strangers of the same address. If nobody can go, the new one waits
// for its turn, and nothing of it is read.
type admission struct {
	max       int
	door      *turns.Queue[netip.Prefix] // of one: who waits for a place takes the next
	waiting   atomic.Int64
	freed     chan struct{}              // holds one: a place is free
	computing *turns.Queue[netip.Prefix] // handshakes that compute; more at once would hold sessions up
	long      *turns.Queue[netip.Prefix] // long handshakes

	mu      sync.Mutex // guards the fields below
	n       int
	origins map[netip.Prefix]*origin
}

// origin is the places of one address.
type origin struct {
	n      int
	places [proven + 1]list.List // of *place, by stage, the oldest in it first
}

// stage is how far a carrier is. Who is further goes later.
type stage int

const (
	silent   stage = iota // its ClientHello has not come, or not all of it
	greeting              // it has; nothing is proven
	proven                // its certificate was accepted
)

// place is a carrier's.
type place struct {
	admission *admission
	from      netip.Prefix
	conn      net.Conn
	ctx       context.Context // ends when the place is lost, or time is up
	cancel    context.CancelCauseFunc
	waiting   atomic.Bool // for the client

	// The admission's lock guards these.
	stage stage
	since time.Time // in the stage
	entry *list.Element

	// The carrier's goroutine has these.
	inHandshake, hasTurn, isLong bool
	came, most                   int // bytes
}

func newAdmission(max int) *admission {
	return &admission{
		max: max, freed: make(chan struct{}, 1), origins: map[netip.Prefix]*origin{},
		door:      turns.New[netip.Prefix](1, 0),
		computing: turns.New[netip.Prefix](runtime.GOMAXPROCS(0), 0),
		long:      turns.New[netip.Prefix](maxLong, 0),
	}
}

// enter gives conn a place until leave, which another may take: then conn is
// reset, and the place's context ends. The error is errCrowded or ctx's cause.
func (a *admission) enter(ctx context.Context, conn net.Conn) (*place, error) {
	p := &place{admission: a, from: turns.Source(conn.RemoteAddr()), conn: conn}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	if a.door.Waits(p.from) || !a.try(p) {
		if err := a.await(p); err != nil {
			p.cancel(nil)
			return nil, err
		}
	}
	conn.SetReadDeadline(p.since.Add(helloTimeout))
	return p, nil
}

// await waits for a place.
func (a *admission) await(p *place) error {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > int64(waitingPerPlace*a.max) {
		return errCrowded
	}
	if err := a.door.Enter(p.ctx, p.from); err != nil {
		return err
	}
	defer a.door.Leave()
	again := time.NewTicker(answerTime / 10) // somebody may have kept the server waiting for too long
	defer again.Stop()
	for !a.try(p) {
		select {
		case <-a.freed:
		case <-again.C:
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
	return nil
}

// try reports whether there is a place, or another one's.
func (a *admission) try(p *place) bool {
	displaced, ok := a.takePlace(p)
	if displaced != nil {
		displaced.cancel(errDisplaced)
		abort.Reset(displaced.conn, 0)
	}
	return ok
}

func (a *admission) takePlace(p *place) (displaced *place, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.since = time.Now()
	if a.n >= a.max {
		if displaced = a.weakestLocked(p.from, p.since); displaced == nil {
			return nil, false
		}
		a.removeLocked(displaced)
	}
	a.addLocked(p)
	return displaced, true
}

// weakestLocked returns whose place one more carrier of the source takes; nil if
// there is none. It is one of the sources with the most places, the new carrier's
// own included.
func (a *admission) weakestLocked(from netip.Prefix, now time.Time) (weakest *place) {
	own := 1
	if s := a.origins[from]; s != nil {
		own += s.n
	}
	most := own
	for _, s := range a.origins {
		most = max(most, s.n)
	}
	for key, s := range a.origins {
		if key == from && own < most || key != from && s.n < most {
			continue
		}
		if p := s.weakest(own == most, now); p != nil && (weakest == nil || p.weaker(weakest)) {
			weakest = p
		}
	}
	return weakest
}

// weakest returns the place of the source that is to go; nil: none. Among equals
// only those go who keep the server waiting: thousands of agents that come at
// once are served one after the other.
func (o *origin) weakest(equals bool, now time.Time) *place {
	for at := range o.places {
		for e := o.places[at].Front(); e != nil; e = e.Next() {
			p := e.Value.(*place)
			switch {
			case !equals:
				return p
			case p.stage == proven, p.stage == greeting && now.Sub(p.since) < answerTime:
				return nil // and those behind it are younger
			case p.waiting.Load():
				return p
			}
		}
	}
	return nil
}

func (p *place) weaker(q *place) bool {
	return p.stage < q.stage || p.stage == q.stage && p.since.Before(q.since)
}

func (a *admission) addLocked(p *place) {
	s := a.origins[p.from]
	if s == nil {
		s = &origin{}
		a.origins[p.from] = s
	}
	a.n++
	s.n++
	p.entry = s.places[p.stage].PushBack(p)
}

func (a *admission) removeLocked(p *place) {
	if p.entry == nil {
		return
	}
	s := a.origins[p.from]
	s.places[p.stage].Remove(p.entry)
	p.entry = nil
	a.n--
	if s.n--; s.n == 0 {
		delete(a.origins, p.from)
	}
}

// leave gives the place back.
func (p *place) leave() {
	a := p.admission
	a.mu.Lock()
	a.removeLocked(p)
	a.mu.Unlock()
	select {
	case a.freed <- struct{}{}:
	default:
	}
	p.yield()
	if p.isLong {
		a.long.Leave()
	}
	p.cancel(nil)
}

// reach is called when the carrier has come to a stage.
func (p *place) reach(to stage) {
	a := p.admission
	a.mu.Lock()
	was := p.stage
	if to > was && p.entry != nil {
		s := a.origins[p.from]
		s.places[was].Remove(p.entry)
		p.stage, p.since = to, time.Now()
		p.entry = s.places[to].PushBack(p)
	}
	a.mu.Unlock()
	if was == silent && to > silent {
		p.conn.SetReadDeadline(time.Time{})
	}
}

// begin is called before a handshake, and end after it: what is to come then is
// a message.
func (p *place) begin() { p.inHandshake, p.most, p.came = true, maxHandshake, 0 }

func (p *place) end() {
	p.yield()
	p.inHandshake, p.most, p.came = false, maxSpoken, 0
}

// prove is called when the client's certificate was accepted.
func (p *place) prove() {
	p.reach(proven)
	if p.isLong {
		p.isLong = false
		p.admission.long.Leave()
		p.conn.SetReadDeadline(time.Time{})
	}
}

// yield gives the turn back.
func (p *place) yield() {
	if p.hasTurn {
		p.hasTurn = false
		p.admission.computing.Leave()
	}
}

// wait is called before the carrier waits for its client, and without a turn.
func (p *place) wait() {
	p.yield()
	p.waiting.Store(true)
}

// announced is called when the header of a record says what is to come.
// Below another TLS it counts for itself only.
func (p *place) announced(n int, nested bool) error {
	if !nested {
		p.came += n
		n = p.came
	}
	if n > p.most {
		return fmt.Errorf("the client sent more than %d bytes before it was let in", p.most)
	}
	if n <= shortHandshake || p.isLong {
		return nil
	}
	p.yield() // another TLS below has it
	if err := p.admission.long.Enter(p.ctx, p.from); err != nil {
		return err
	}
	p.isLong = true
	return p.conn.SetReadDeadline(time.Now().Add(longTimeout))
}

// compute is called when a whole record has come: of a handshake, it waits for a
// turn.
func (p *place) compute() error {
	p.waiting.Store(false)
	if !p.inHandshake || p.hasTurn {
		return nil
	}
	err := p.admission.computing.Enter(p.ctx, p.from)
	p.hasTurn = err == nil
	return err
}
