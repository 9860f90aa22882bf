// Package admission bounds what clients cost who have not proven who they are,
// and shares it fairly among the addresses that they come from.
package admission

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
	// answerTime is how long a client that was answered may take for its next
	// message before it makes room for another one of its own source.
	answerTime = 250 * time.Millisecond

	// A handshake in which the client sends more than shortHandshake is a long
	// one, for a chain of certificates, say, and so is one whose first message is
	// longer than shortHello, which has room for a post-quantum key share: maxLong
	// are under way at once, each for longTimeout at most. More than maxHandshake
	// is refused. What a client sends takes several times its size here, until it
	// has proven who it is.
	shortHello     = 2 << 10
	shortHandshake = 4 << 10
	maxHandshake   = 16 << 10
	maxLong        = 32
	longTimeout    = 2 * time.Second

	// waitingPerPlace is how many may wait for each place.
	waitingPerPlace = 4
)

var (
	// ErrCrowded: there was no place, or another connection has taken it.
	ErrCrowded   = errors.New("too many connections in their handshake")
	errDisplaced = fmt.Errorf("%w: it made room for another one", ErrCrowded)
)

// Admission is where connections are until they have proven who they are: at most
// max at once. When it is full, a new one takes the place of another. Each source
// keeps as many as any other, so that one address can't keep the others out;
// and within a source the oldest goes that has sent nothing, so that a right
// client gets in beside strangers of the same address. If nobody can go, the new one
// waits for its turn, and nothing of it is read. Make one by [New].
type Admission struct {
	max       int
	hello     time.Duration              // for the first message; zero: no limit
	door      *turns.Queue[netip.Prefix] // of one: who waits for a place takes the next
	waiting   atomic.Int64
	freed     chan struct{}              // holds one: a place is free
	Computing *turns.Queue[netip.Prefix] // handshakes that compute; more at once would hold sessions up
	long      *turns.Queue[netip.Prefix] // long handshakes

	mu      sync.Mutex // guards the fields below
	n       int
	origins map[netip.Prefix]*origin
}

// origin is the places of one address.
type origin struct {
	n      int
	places [Proven + 1]list.List // of *Place, by stage, the oldest in it first
}

// Stage is how far a connection is. Who is further goes later.
type Stage int

const (
	Silent   Stage = iota // its first message has not come, or not all of it
	Greeting              // it was answered; nothing is proven
	Proven                // it has shown who it is
)

// Place is a connection's. One goroutine uses it, but for Wait and Compute
// outside of a handshake, and Leave.
type Place struct {
	admission *Admission
	from      netip.Prefix
	conn      net.Conn
	ctx       context.Context // ends when the place is lost, or time is up
	cancel    context.CancelCauseFunc
	waiting   atomic.Bool // for the client

	// The admission's lock guards these.
	stage Stage
	since time.Time // in the stage
	entry *list.Element

	// The connection's goroutine has these.
	hello                        []byte // the first message, until it is whole
	inHandshake, hasTurn, isLong bool
	came, most                   int // bytes
}

// New returns an Admission of max places. Clients have the time hello for their
// first message; zero means that the caller limits it.
func New(max int, hello time.Duration) *Admission {
	return &Admission{
		max: max, hello: hello, freed: make(chan struct{}, 1), origins: map[netip.Prefix]*origin{},
		door:      turns.New[netip.Prefix](1, 0),
		Computing: turns.New[netip.Prefix](runtime.GOMAXPROCS(0), 0),
		long:      turns.New[netip.Prefix](maxLong, 0),
	}
}

// Enter gives conn a place until Leave, which another may take: then conn is
// reset, and the place's context ends. The error is ErrCrowded or ctx's cause.
func (a *Admission) Enter(ctx context.Context, conn net.Conn) (*Place, error) {
	p := &Place{admission: a, from: turns.Source(conn.RemoteAddr()), conn: conn}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	if a.door.Waits(p.from) || !a.try(p) {
		if err := a.await(p); err != nil {
			p.cancel(nil)
			return nil, err
		}
	}
	if a.hello > 0 {
		conn.SetReadDeadline(time.Now().Add(a.hello))
	}
	return p, nil
}

// Context ends with the context of Enter, when the place is lost, and by Leave.
// Its cause is an ErrCrowded if the place is lost.
func (p *Place) Context() context.Context { return p.ctx }

// await waits for a place.
func (a *Admission) await(p *Place) error {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > int64(waitingPerPlace*a.max) {
		return ErrCrowded
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
func (a *Admission) try(p *Place) bool {
	displaced, ok := a.takePlace(p)
	if displaced != nil {
		displaced.cancel(errDisplaced)
		abort.Reset(displaced.conn, 0)
	}
	return ok
}

func (a *Admission) takePlace(p *Place) (displaced *Place, ok bool) {
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

// weakestLocked returns whose place one more connection of the source takes; nil if
// there is none. It is one of the sources with the most places, the new one's
// own included.
func (a *Admission) weakestLocked(from netip.Prefix, now time.Time) (weakest *Place) {
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
// only those go who keep the server waiting: thousands that come at
// once are served one after the other.
func (o *origin) weakest(equals bool, now time.Time) *Place {
	for at := range o.places {
		for e := o.places[at].Front(); e != nil; e = e.Next() {
			p := e.Value.(*Place)
			switch {
			case !equals:
				return p
			case p.stage == Proven, p.stage == Greeting && now.Sub(p.since) < answerTime:
				return nil // and those behind it are younger
			case p.waiting.Load():
				return p
			}
		}
	}
	return nil
}

func (p *Place) weaker(q *Place) bool {
	return p.stage < q.stage || p.stage == q.stage && p.since.Before(q.since)
}

func (a *Admission) addLocked(p *Place) {
	s := a.origins[p.from]
	if s == nil {
		s = &origin{}
		a.origins[p.from] = s
	}
	a.n++
	s.n++
	p.entry = s.places[p.stage].PushBack(p)
}

func (a *Admission) removeLocked(p *Place) {
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

// Leave gives the place back; it may be called again.
func (p *Place) Leave() {
	a := p.admission
	a.mu.Lock()
	a.removeLocked(p)
	a.mu.Unlock()
	select {
	case a.freed <- struct{}{}:
	default:
	}
	p.Yield()
	if p.isLong {
		p.isLong = false
		a.long.Leave()
	}
	p.cancel(nil)
}

// Reach is called when the connection has come to a stage.
func (p *Place) Reach(to Stage) {
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
	if was == Silent && to > Silent && a.hello > 0 {
		p.conn.SetReadDeadline(time.Time{})
	}
}

// Begin is called before a handshake of TLS, and End after it: what is to come
// then is messages of most bytes.
func (p *Place) Begin() { p.inHandshake, p.most, p.came = true, maxHandshake, 0 }

func (p *Place) End(most int) {
	p.Yield()
	p.inHandshake, p.most, p.came = false, most, 0
}

// Limit changes how many bytes may come, those after the handshake included that
// have come already.
func (p *Place) Limit(most int) { p.most = most }

// Prove is called when the client's certificate was accepted.
func (p *Place) Prove() {
	p.Reach(Proven)
	if p.isLong {
		p.isLong = false
		p.admission.long.Leave()
		p.conn.SetReadDeadline(time.Time{})
	}
}

// Yield gives the turn back.
func (p *Place) Yield() {
	if p.hasTurn {
		p.hasTurn = false
		p.admission.Computing.Leave()
	}
}

// Wait is called before the server waits for the client.
func (p *Place) Wait() {
	p.Yield()
	p.waiting.Store(true)
}

// announced is called when the header of a record says what is to come.
// Below another TLS it counts for itself only.
func (p *Place) announced(n int, nested bool) error {
	if !nested {
		p.came += n
		n = p.came
	}
	if n > p.most {
		return fmt.Errorf("the client sent more than %d bytes before it was let in", p.most)
	}
	if n <= shortHello || n <= shortHandshake && p.stage > Silent {
		return nil
	}
	return p.lengthen()
}

// heard is given the first message of TLS, and whether it ends here.
func (p *Place) heard(part []byte, whole bool) error {
	if p.isLong {
		return nil
	}
	p.hello = append(p.hello, part...)
	if !whole {
		return nil
	}
	short := isShort(p.hello)
	p.hello = nil
	if short {
		return nil
	}
	return p.lengthen()
}

// lengthen has a long handshake wait for its turn.
func (p *Place) lengthen() error {
	if p.isLong {
		return nil
	}
	p.Yield() // another TLS below has it
	if err := p.admission.long.Enter(p.ctx, p.from); err != nil {
		return err
	}
	p.isLong = true
	return p.conn.SetReadDeadline(time.Now().Add(longTimeout))
}

// Compute is called when a whole message has come, and the client waits for the
// server from now on. In a handshake it waits for a turn.
func (p *Place) Compute() error {
	p.waiting.Store(false)
	if !p.inHandshake || p.hasTurn {
		return nil
	}
	err := p.admission.Computing.Enter(p.ctx, p.from)
	p.hasTurn = err == nil
	return err
}
