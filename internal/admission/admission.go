// Package admission bounds what unauthenticated clients (strangers) cost a server, and
// shares the bound fairly among the addresses that they come from.
//
// A connection holds a [Place] from its acceptance until the client is authenticated.
// A stranger can cost, at most:
//
//	connections at once           max of New, and four times as many that wait and are not read
//	time for the first message    the hello timeout of New
//	time between two messages     while places are short: answerTime, then another client of
//	                              the same source may take the place
//	bytes of a TLS handshake      maxHandshake
//	memory for a handshake        about 4 KiB of messages; 32 handshakes at once (maxLong) may
//	                              have more, for longTimeout each
//	CPU                           GOMAXPROCS handshakes compute at once, in turn by source
//
// A source is an IPv4 address or an IPv6 network, see package turns.
package admission

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
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
	// message before another one of its own source may take its place.
	answerTime = 250 * time.Millisecond

	// A handshake is long if the client's first message is longer than shortHello,
	// which has room for a post-quantum key share, or if the client sends more than
	// shortHandshake, such as a chain of certificates. maxLong of them run at once,
	// each for longTimeout at most. More than maxHandshake is refused. crypto/tls
	// takes several times the memory of what a client sends.
	shortHello     = 2 << 10
	shortHandshake = 4 << 10
	maxHandshake   = 16 << 10
	maxLong        = 32
	longTimeout    = 2 * time.Second

	// waitingPerPlace is how many may wait for each place.
	waitingPerPlace = 4
)

var (
	// ErrCrowded means that no place was free, or that another connection took it.
	ErrCrowded   = errors.New("too many connections in their handshake")
	errDisplaced = fmt.Errorf("%w: it made room for another one", ErrCrowded)
)

// Admission holds the places. When all are taken, a new connection takes the place of
// another one: of the source with the most places, so that one address can't keep the
// others out, and within a source the oldest that has sent nothing, so that a client
// gets in next to strangers of the same address. If no place can be taken, the new
// connection waits for its turn and is not read. When too many wait, the newest of the
// source with the most makes room. Make one by [New].
type Admission struct {
	max       int
	hello     time.Duration              // for the first message; zero: no limit
	entering  *turns.Queue[netip.Prefix] // one turn: its holder takes the next place
	waiting   atomic.Int64
	freed     chan struct{}              // holds one: a place is free
	Computing *turns.Queue[netip.Prefix] // handshakes that compute; more at once would hold sessions up
	longTurns *turns.Queue[netip.Prefix] // long handshakes

	// Patience is how long a silent client has, too, before one of a source with as many
	// places may take its place. The other one waits. It is for places that are kept for
	// long: else newcomers would only displace each other. Set it before the first Enter.
	Patience time.Duration

	mu      sync.Mutex // guards the fields below
	used    int
	sources map[netip.Prefix]*source
}

// source is the places of one address.
type source struct {
	n      int
	places [Proven + 1]list.List // of *Place, by stage, the oldest in it first
}

// Stage is the progress of a connection. The further it is, the later it is displaced.
type Stage int

const (
	Silent   Stage = iota // its first message is not complete
	Greeting              // it was answered, and is not authenticated
	Proven                // its certificate was accepted
)

// Place is the place of a connection. One goroutine uses it, except for Leave, and for
// Wait and Compute outside of a handshake.
type Place struct {
	admission *Admission
	from      netip.Prefix
	conn      net.Conn
	ctx       context.Context // ends when the place is lost or the time is over
	cancel    context.CancelCauseFunc
	waiting   atomic.Bool // for the client

	// The admission's lock guards these.
	stage Stage
	since time.Time // in the stage
	entry *list.Element

	// Only the connection's goroutine uses these.
	hello                        []byte // the first message, until it is complete
	inHandshake, hasTurn, isLong bool
	settled                      bool
	received, maxBytes           int // bytes
}

// New returns an Admission of max places. Clients have the time hello for their
// first message; zero means that the caller limits it.
func New(max int, hello time.Duration) *Admission {
	a := &Admission{
		max: max, hello: hello, freed: make(chan struct{}, 1), sources: map[netip.Prefix]*source{},
		entering:  turns.New[netip.Prefix](1, 0),
		Computing: turns.New[netip.Prefix](runtime.GOMAXPROCS(0), 0),
		longTurns: turns.New[netip.Prefix](maxLong, 0),
	}
	a.entering.MaxAll = waitingPerPlace*max - 1 // one more has the turn
	return a
}

// Load returns how many connections have a place, and how many wait for one.
func (a *Admission) Load() (held, waiting int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used, int(a.waiting.Load())
}

// Enter gives conn a place until Leave. Another connection may take it: then conn is
// reset, and the place's context ends. The error is ErrCrowded or ctx's cause.
func (a *Admission) Enter(ctx context.Context, conn net.Conn) (*Place, error) {
	p := &Place{admission: a, from: turns.Source(conn.RemoteAddr()), conn: conn}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	if a.entering.Waits(p.from) || !a.tryEnter(p) {
		if err := a.awaitPlace(p); err != nil {
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

// awaitPlace waits for a place.
func (a *Admission) awaitPlace(p *Place) error {
	if a.max <= 0 {
		return ErrCrowded
	}
	a.waiting.Add(1)
	defer a.waiting.Add(-1)
	if err := a.entering.Enter(p.ctx, p.from); errors.Is(err, turns.ErrFull) {
		return ErrCrowded
	} else if err != nil {
		return err
	}
	defer a.entering.Leave()
	again := time.NewTicker(answerTime / 10) // answerTime of another one may be over
	defer again.Stop()
	for !a.tryEnter(p) {
		select {
		case <-a.freed:
		case <-again.C:
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
	return nil
}

// tryEnter takes a free place, or that of another connection, which it resets.
func (a *Admission) tryEnter(p *Place) bool {
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
	if a.used >= a.max {
		if displaced = a.weakestLocked(p.from, p.since); displaced == nil {
			return nil, false
		}
		a.removeLocked(displaced)
	}
	a.addLocked(p)
	return displaced, true
}

// weakestLocked returns the place that one more connection of the source takes, or nil.
// The place belongs to a source with the most places, where the new connection counts
// for its own source.
func (a *Admission) weakestLocked(from netip.Prefix, now time.Time) (weakest *Place) {
	own := 1
	if s := a.sources[from]; s != nil {
		own += s.n
	}
	most := own
	for _, s := range a.sources {
		most = max(most, s.n)
	}
	for key, s := range a.sources {
		if key == from && own < most || key != from && s.n < most {
			continue
		}
		if p := s.weakest(own == most, a.Patience, now); p != nil && (weakest == nil || p.weakerThan(weakest)) {
			weakest = p
		}
	}
	return weakest
}

// weakest returns the place of the source that can be taken, or nil. If equals is set,
// the new connection's source has as many places as this one: then only a connection
// that keeps the server waiting is displaced, so that thousands that come at once are
// served one after the other.
func (o *source) weakest(equals bool, patience time.Duration, now time.Time) *Place {
	for at := range o.places {
		if Stage(at) == Greeting {
			patience = answerTime
		}
		for e := o.places[at].Front(); e != nil; e = e.Next() {
			p := e.Value.(*Place)
			if !equals {
				return p
			}
			if p.stage == Proven || now.Sub(p.since) < patience {
				break // those behind it are younger
			}
			if p.waiting.Load() {
				return p
			}
		}
	}
	return nil
}

func (p *Place) weakerThan(q *Place) bool {
	return p.stage < q.stage || p.stage == q.stage && p.since.Before(q.since)
}

func (a *Admission) addLocked(p *Place) {
	s := a.sources[p.from]
	if s == nil {
		s = &source{}
		a.sources[p.from] = s
	}
	a.used++
	s.n++
	p.entry = s.places[p.stage].PushBack(p)
}

func (a *Admission) removeLocked(p *Place) {
	if p.entry == nil {
		return
	}
	s := a.sources[p.from]
	s.places[p.stage].Remove(p.entry)
	p.entry = nil
	a.used--
	if s.n--; s.n == 0 {
		delete(a.sources, p.from)
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
	p.endLong()
	p.cancel(nil)
}

// Reach is called when the connection has reached a stage.
func (p *Place) Reach(to Stage) {
	a := p.admission
	a.mu.Lock()
	was := p.stage
	if to > was && p.entry != nil {
		s := a.sources[p.from]
		s.places[was].Remove(p.entry)
		p.stage, p.since = to, time.Now()
		p.entry = s.places[to].PushBack(p)
	}
	a.mu.Unlock()
	if was == Silent && to > Silent && a.hello > 0 {
		p.conn.SetReadDeadline(time.Time{})
	}
}

// Begin is called before a TLS handshake, and End after it with the number of bytes that
// may still come.
func (p *Place) Begin() { p.inHandshake, p.maxBytes, p.received = true, maxHandshake, 0 }

func (p *Place) End(most int) {
	p.Yield()
	p.inHandshake, p.maxBytes, p.received = false, most, 0
}

// Limit sets how many bytes may come, with the bytes counted so far.
func (p *Place) Limit(most int) { p.maxBytes = most }

// Prove is called when the client's certificate was accepted. Its handshake is not a
// long one any more.
func (p *Place) Prove() {
	p.Reach(Proven)
	p.endLong()
}

// Settle is called after the handshake of a connection that keeps its place for its whole
// life. Its bytes don't count any more. If proven is set, the client has a certificate.
func (p *Place) Settle(proven bool) {
	p.End(math.MaxInt)
	p.settled = true
	if proven {
		p.Reach(Proven)
	}
	p.endLong()
}

func (p *Place) endLong() {
	if p.isLong {
		p.isLong = false
		p.admission.longTurns.Leave()
		p.conn.SetReadDeadline(time.Time{})
	}
}

// Yield gives the turn to compute back.
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

// checkRecord is called with the size of a record when its header has come. A nested
// record counts by itself, because the outer TLS has counted its bytes.
func (p *Place) checkRecord(n int, nested bool) error {
	if p.settled {
		return nil
	}
	if !nested {
		p.received += n
		n = p.received
	}
	if n > p.maxBytes {
		return fmt.Errorf("the client sent more than %d bytes before it was let in", p.maxBytes)
	}
	if n <= shortHello || n <= shortHandshake && p.stage > Silent {
		return nil
	}
	return p.becomeLong()
}

// checkHello is called with a part of the first message, and whether it is the last
// part.
func (p *Place) checkHello(part []byte, whole bool) error {
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
	return p.becomeLong()
}

// becomeLong makes a long handshake wait for its turn.
func (p *Place) becomeLong() error {
	if p.isLong {
		return nil
	}
	p.Yield() // an outer TLS may have the turn
	if err := p.admission.longTurns.Enter(p.ctx, p.from); err != nil {
		return err
	}
	p.isLong = true
	return p.conn.SetReadDeadline(time.Now().Add(longTimeout))
}

// Compute is called when a message is complete, and the client waits for the server
// from now on. In a handshake it waits for a turn to compute.
func (p *Place) Compute() error {
	p.waiting.Store(false)
	if !p.inHandshake || p.hasTurn {
		return nil
	}
	err := p.admission.Computing.Enter(p.ctx, p.from)
	p.hasTurn = err == nil
	return err
}
