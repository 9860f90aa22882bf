package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

// Failover dials with the first of several Dialers that works: proxies that
// can stand in for each other, or ways to the same network.
//
// The next one is tried only before the tunnel is up, and by default only if
// the proxy is at fault ([ProxyFailed]). A proxy that answers no has answered:
// neither a 403 nor a refused password sends a connection another way.
//
// If ctx has a deadline, the time that remains is divided by the number of
// Dialers that remain, as net.Dialer does for the addresses of a name, but
// each has 2 seconds if there are as many: one that never answers takes its
// share and not all. Without a deadline it takes what its own Timeout allows.
//
// A Failover remembers which of its Dialers failed, and must not be copied
// after its first use. It is safe for concurrent use once its fields are set.
type Failover struct {
	// Dialers are tried in their order. Required.
	Dialers []Dialer
	// CoolDown is how long after a failure a Dialer is tried last instead of in
	// its place. A success ends it. What shows only that this process can't
	// reach or look up the target is no failure of the Dialer. If zero, 30
	// seconds; if negative, no Dialer loses its place.
	CoolDown time.Duration
	// Hedge starts the next Dialer when those before it have not answered for
	// this long. The first connection wins; the others are cancelled and closed.
	// A no counts in the order of Dialers: it ends the dial when those before
	// have failed. Deadlines are not divided, but the next is started after the
	// share of the time at the latest. The hooks of a Trace are then called from
	// several goroutines. If zero or negative, one Dialer is tried at a time.
	Hedge time.Duration
	// Retry reports whether the next Dialer is tried after err, which one has
	// returned. It must be safe for concurrent use. If nil, ProxyFailed. It is
	// not asked once ctx has ended: nothing is tried then.
	Retry func(err error) bool

	mu     sync.Mutex        // guards failed
	failed map[int]time.Time // when a Dialer failed that has not worked since
}

var _ Dialer = (*Failover)(nil)

const (
	opFailover      = "failover"
	defaultCoolDown = 30 * time.Second
	// minShare is what net.Dialer gives an address at the least.
	minShare = 2 * time.Second
)

// errNoResult is the error of a member that breaks the contract of Dialer.
var errNoResult = errors.New("it returned neither a connection nor an error")

// errTimeShare is the cause of the end of one member's context.
var errTimeShare = errors.New("its share of the time is over")

// DialContext dials with one of f.Dialers after the other until one connects.
// The connection is as that one made it. When it returns, all that it started
// has ended: it waits for the Dialers that it has cancelled.
//
// A failure is an [*Error] whose cause, found by errors.As, is the [Failures]:
// which Dialers failed, and why. Its Phase and Status are those of the last
// one. If ctx has ended, the error is ctx's as well.
func (f *Failover) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := &failoverDial{Failover: f, network: network, address: address}
	if err := f.checkFields(); err != nil {
		return nil, &Error{Op: opFailover, Phase: PhaseConfig, Addr: address, Err: err}
	}
	d.order = f.memberOrder(time.Now())
	if f.Hedge > 0 {
		return d.dialHedged(ctx)
	}
	return d.dialInTurn(ctx)
}

func (f *Failover) checkFields() error {
	if len(f.Dialers) == 0 {
		return errors.New("field Dialers is required: at least one")
	}
	if i := slices.IndexFunc(f.Dialers, isNil); i >= 0 {
		return fmt.Errorf("field Dialers: member %d of %d is nil", i+1, len(f.Dialers))
	}
	return nil
}

// memberOrder returns the members in the order in which to try them.
func (f *Failover) memberOrder(now time.Time) []int {
	coolDown := f.CoolDown
	if coolDown == 0 {
		coolDown = defaultCoolDown
	}
	order, cooling := make([]int, 0, len(f.Dialers)), []int(nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.Dialers {
		if at, ok := f.failed[i]; ok && now.Sub(at) < coolDown {
			cooling = append(cooling, i)
		} else {
			order = append(order, i)
		}
	}
	return append(order, cooling...)
}

func (f *Failover) recordSuccess(member int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.failed, member)
}

func (f *Failover) recordFailure(member int, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = make(map[int]time.Time)
	}
	f.failed[member] = now
}

// failoverDial is one call of DialContext.
type failoverDial struct {
	*Failover
	network, address string
	order            []int // the members, as they are tried
	failures         Failures
}

// memberAttempt is the end of a dial with one member.
type memberAttempt struct {
	place   int // of the member in order
	conn    net.Conn
	err     error
	tryNext bool // after err, the next member is tried
}

// dialMember dials with one member, for at most limit if that is not zero, and notes
// how it went.
func (d *failoverDial) dialMember(ctx context.Context, place int, limit time.Duration) memberAttempt {
	member := d.order[place]
	own := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		own, cancel = context.WithTimeoutCause(ctx, limit, errTimeShare)
		defer cancel()
	}
	conn, err := d.Dialers[member].DialContext(own, d.network, d.address)
	if conn == nil && err == nil {
		err = errNoResult
	}
	switch {
	case err == nil:
		d.recordSuccess(member)
		return memberAttempt{place: place, conn: conn}
	case ctx.Err() != nil:
		return memberAttempt{place: place, err: err} // whatever it says: it had no chance
	}
	retry := d.Retry
	if retry == nil {
		retry = ProxyFailed
	}
	again := retry(err)
	if again && !targetFailed(err) {
		d.recordFailure(member, time.Now())
	}
	return memberAttempt{place: place, err: err, tryNext: again}
}

func (d *failoverDial) addFailure(a memberAttempt) {
	d.failures = append(d.failures, Failure{Member: d.order[a.place], Err: a.err})
}

func (d *failoverDial) dialInTurn(ctx context.Context) (net.Conn, error) {
	for place := range d.order {
		a := d.dialMember(ctx, place, timeShare(ctx, len(d.order)-place))
		if a.err == nil {
			return a.conn, nil
		}
		d.addFailure(a)
		if !a.tryNext {
			break
		}
	}
	return nil, d.newError(ctx)
}

// hedgedDial is a dial whose members run side by side.
type hedgedDial struct {
	*failoverDial
	wg       sync.WaitGroup
	results  chan memberAttempt
	pending  []bool         // by place
	next     int            // the place to start
	endPlace int            // the place from which on none counts
	refusal  *memberAttempt // what end is there for: it counts when all before have failed
}

// dialHedged starts each member when the one before it has failed, or has not
// answered for long enough.
func (d *failoverDial) dialHedged(ctx context.Context) (net.Conn, error) {
	n := len(d.order)
	r := &hedgedDial{failoverDial: d, results: make(chan memberAttempt, n), pending: make([]bool, n), endPlace: n}
	each, cancel := context.WithCancel(ctx)
	defer func() { cancel(); r.closeLosers() }()
	timer := time.NewTimer(d.hedgeDelay(ctx, n))
	defer timer.Stop()
	for {
		// The first one says what has become of ctx.
		if r.next == 0 || r.next < r.endPlace && ctx.Err() == nil {
			timer.Reset(d.hedgeDelay(ctx, n-r.next))
			r.startMember(each)
		}
		if !slices.Contains(r.pending[:r.endPlace], true) {
			break
		}
		select {
		case <-timer.C:
		case a := <-r.results:
			if conn := r.handleAttempt(a); conn != nil {
				return conn, nil
			}
		}
	}
	if r.refusal != nil {
		d.addFailure(*r.refusal)
	}
	return nil, d.newError(ctx)
}

func (r *hedgedDial) startMember(ctx context.Context) {
	place := r.next
	r.next++
	r.pending[place] = true
	r.wg.Go(func() { r.results <- r.dialMember(ctx, place, 0) })
}

// handleAttempt returns the connection of a if that wins.
func (r *hedgedDial) handleAttempt(a memberAttempt) net.Conn {
	r.pending[a.place] = false
	switch {
	case a.place >= r.endPlace:
		a.closeConn()
	case a.err == nil:
		return a.conn
	case a.tryNext:
		r.addFailure(a)
	default:
		r.refusal, r.endPlace = &a, a.place
	}
	return nil
}

// closeLosers waits for the members that are still running, which were cancelled.
func (r *hedgedDial) closeLosers() {
	r.wg.Wait()
	close(r.results)
	for a := range r.results {
		a.closeConn()
	}
}

// closeConn closes the connection of a member that came too late.
func (a memberAttempt) closeConn() {
	if a.conn != nil {
		abort.Close(a.conn)
	}
}

// hedgeDelay is how long a member may take before the next is started.
func (d *failoverDial) hedgeDelay(ctx context.Context, left int) time.Duration {
	if s := timeShare(ctx, left); s > 0 {
		return min(s, d.Hedge)
	}
	return d.Hedge
}

// timeShare is the part of the time until ctx's deadline that one of so many
// members may take. Zero means all of it, and so does what is longer.
func timeShare(ctx context.Context, members int) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || members == 1 {
		return 0
	}
	return max(time.Until(deadline)/time.Duration(members), minShare)
}

func (d *failoverDial) newError(ctx context.Context) error {
	last := d.failures[len(d.failures)-1].Err
	e := &Error{Op: opFailover, Phase: PhaseTCP, Addr: d.address, Err: d.failures}
	if cause := decisiveError(last); cause != nil {
		e.Phase, e.Status = cause.Phase, cause.Status
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(last, ended) {
		e.Err = fmt.Errorf("%w: %w", contextError(ctx, ended), d.failures)
	}
	return e
}

// Fallback dials with First, and where that fails for a reason that When names,
// with Second. Unlike the members of a [Failover], the two are not the same:
// Second leads through another network, is seen by others, or was meant to be
// gone by now. So it is never taken in silence: Used hears of each time.
//
// If ctx has a deadline, First has at most half of the time, or two seconds if
// that is more. A Fallback is safe for concurrent use once its fields are set,
// and must not be copied after its first use.
type Fallback struct {
	// First and Second are the ways. Required.
	First, Second Dialer
	// When reports whether err, of First, is a reason to take Second. It is not
	// asked once ctx has ended. Required: no reason goes without saying.
	When func(err error) bool
	// Used is called before each dial with Second, with what First said.
	// Required.
	Used func(network, address string, err error)

	used atomic.Uint64
}

var _ Dialer = (*Fallback)(nil)

// DialContext dials address. A failure of both is an [*Error] that has
// [Failures]; one for which Second is not taken is that of First alone.
func (f *Fallback) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := f.checkFields(); err != nil {
		return nil, &Error{Op: "fallback", Phase: PhaseConfig, Addr: address, Err: err}
	}
	first := true
	both := &Failover{Dialers: []Dialer{f.First, f.Second}, CoolDown: -1, Retry: func(err error) bool {
		if !first || !f.When(err) {
			return false
		}
		first = false
		f.used.Add(1)
		f.Used(network, address, err)
		return true
	}}
	conn, err := both.DialContext(ctx, network, address)
	var failures Failures
	if first && errors.As(err, &failures) && ctx.Err() == nil {
		return nil, failures[0].Err
	}
	return conn, err
}

func (f *Fallback) checkFields() error {
	switch {
	case isNil(f.First):
		return errors.New("field First is required")
	case isNil(f.Second):
		return errors.New("field Second is required")
	case f.When == nil:
		return errors.New("field When is required")
	case f.Used == nil:
		return errors.New("field Used is required")
	}
	return nil
}

// Count returns how many dials took Second.
func (f *Fallback) Count() uint64 { return f.used.Load() }
