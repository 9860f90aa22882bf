package dialer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/race"
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
	return d.dial(ctx)
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
	coolDown := cmp.Or(f.CoolDown, defaultCoolDown)
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

// dialMember dials with one member, for at most limit unless that is zero, and
// records the result.
func (d *failoverDial) dialMember(ctx context.Context, place int, limit time.Duration) race.Attempt {
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
		return race.Attempt{Conn: conn}
	case ctx.Err() != nil:
		return race.Attempt{Err: err, Final: true} // ctx ended, so err says nothing of the member
	}
	retry := d.Retry
	if retry == nil {
		retry = ProxyFailed
	}
	again := retry(err)
	if again && !targetFailed(err) {
		d.recordFailure(member, time.Now())
	}
	return race.Attempt{Err: err, Final: !again}
}

// dial starts each member when the one before it has failed, or has not answered for
// hedgeDelay. Without Hedge it ends one after its share of the time instead.
func (d *failoverDial) dial(ctx context.Context) (net.Conn, error) {
	delay := func(left int) time.Duration { return d.hedgeDelay(ctx, left) }
	dial := func(ctx context.Context, place int) race.Attempt {
		if d.Hedge > 0 {
			return d.dialMember(ctx, place, 0)
		}
		return d.dialMember(ctx, place, timeShare(ctx, len(d.order)-place))
	}
	failed := func(place int, err error) {
		d.failures = append(d.failures, Failure{Member: d.order[place], Err: err})
	}
	if conn := race.Dial(ctx, len(d.order), delay, dial, failed); conn != nil {
		return conn, nil
	}
	return nil, d.newError(ctx)
}

// hedgeDelay returns how long a member may take before the next one is started.
func (d *failoverDial) hedgeDelay(ctx context.Context, left int) time.Duration {
	if d.Hedge <= 0 {
		return math.MaxInt64
	}
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
	if end := ctx.Err(); end != nil && !errors.Is(last, end) {
		e.Err = fmt.Errorf("%w: %w", ended.Error(ctx, end), d.failures)
	}
	return e
}
