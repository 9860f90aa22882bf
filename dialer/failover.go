package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

// Failover dials with the first of several equivalent Dialers that works, such as
// the replicas of a proxy.
//
// The next Dialer is tried only if there is no connection yet, and by default only
// if the proxy is at fault ([ProxyFailed]). A refusal, such as a 403 or of a password,
// is no fault: the next Dialer is not tried.
//
// If ctx has a deadline, each Dialer may take an equal share of the time that
// remains, and at least 2 seconds, as with net.Dialer for the addresses of a name. So
// a Dialer that never answers does not take all of the time. Without a deadline its
// own Timeout bounds it.
//
// A Failover remembers which of its Dialers failed, and must not be copied after its
// first use. It is safe for concurrent use once its fields are set.
type Failover struct {
	// Dialers are tried in their order. Required.
	Dialers []Dialer
	// CoolDown is how long a Dialer that failed is tried after all others. A success
	// ends it. An error that is only about the target does not count as a failure. If
	// zero, it is 30 seconds; if negative, the order never changes.
	CoolDown time.Duration
	// Hedge is how long a Dialer may take before the next one is started too. The
	// first connection wins; the other dials are cancelled, their connections closed.
	// A refusal takes effect once all earlier Dialers have failed. If ctx has a
	// deadline, the next Dialer is started after the share of the time at the latest.
	// The hooks of a Trace are then called by several goroutines. If zero or negative,
	// one Dialer is tried at a time.
	Hedge time.Duration
	// Retry reports whether the next Dialer is tried after the error of one. It must
	// be safe for concurrent use. It is not called once ctx has ended: then nothing
	// more is tried. If nil, it is ProxyFailed.
	Retry func(err error) bool

	mu     sync.Mutex        // guards failed
	failed map[int]time.Time // when a Dialer failed, if it has not worked since
}

var _ Dialer = (*Failover)(nil)

const (
	opFailover      = "failover"
	defaultCoolDown = 30 * time.Second
	// minShare is the least time that net.Dialer gives to an address.
	minShare = 2 * time.Second
)

// errNoResult is the error for a member that breaks the contract of Dialer.
var errNoResult = errors.New("the Dialer returned neither a connection nor an error")

// errTimeShare is the cause of a member's context that ended before ctx.
var errTimeShare = errors.New("its share of the time until the deadline is over")

// DialContext dials with one of f.Dialers after the other until one connects, and
// returns that one's connection. Before it returns it waits for the dials that it has
// cancelled.
//
// The error is an [*Error]. errors.As finds [Failures] in it: which Dialers failed,
// and why. Phase and Status are those of the last one. If ctx has ended, errors.Is
// finds its error too.
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

// memberOrder returns the members in the order in which they are tried.
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
	order            []int // members, in the order in which they are tried
	failures         Failures
}

// memberAttempt is the result of a dial with one member.
type memberAttempt struct {
	place   int // the member is order[place]
	conn    net.Conn
	err     error
	tryNext bool // err lets the next member be tried
}

// dialMember dials with one member, for at most limit unless that is zero, and
// records the result.
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
		return memberAttempt{place: place, err: err} // ctx ended, so err says nothing of the member
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

// hedgedDial is a dial whose members run at the same time.
type hedgedDial struct {
	*failoverDial
	wg       sync.WaitGroup
	results  chan memberAttempt
	pending  []bool         // by place: the member has not answered
	next     int            // the next place to start
	endPlace int            // this place and later ones don't count
	refusal  *memberAttempt // by endPlace; nil: none
}

// dialHedged starts each member when the one before it has failed, or has not
// answered for hedgeDelay.
func (d *failoverDial) dialHedged(ctx context.Context) (net.Conn, error) {
	n := len(d.order)
	r := &hedgedDial{failoverDial: d, results: make(chan memberAttempt, n), pending: make([]bool, n), endPlace: n}
	each, cancel := context.WithCancel(ctx)
	defer func() { cancel(); r.closeLosers() }()
	timer := time.NewTimer(d.hedgeDelay(ctx, n))
	defer timer.Stop()
	for {
		// The first member is started even if ctx has ended: its error says so.
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

// handleAttempt returns the connection of a if it wins, and records a's error.
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

// closeLosers waits for the members that were cancelled and closes their
// connections.
func (r *hedgedDial) closeLosers() {
	r.wg.Wait()
	close(r.results)
	for a := range r.results {
		a.closeConn()
	}
}

// closeConn closes the connection of a member that did not win.
func (a memberAttempt) closeConn() {
	if a.conn != nil {
		abort.Close(a.conn)
	}
}

// hedgeDelay returns how long a member may take before the next one is started.
func (d *failoverDial) hedgeDelay(ctx context.Context, left int) time.Duration {
	if s := timeShare(ctx, left); s > 0 {
		return min(s, d.Hedge)
	}
	return d.Hedge
}

// timeShare returns how much of the time until ctx's deadline one of so many members
// may take. Zero means no limit but the deadline.
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
