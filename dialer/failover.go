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

// errNothing is the error of a member that breaks the contract of Dialer.
var errNothing = errors.New("it returned neither a connection nor an error")

// errShare is the cause of the end of one member's context.
var errShare = errors.New("its share of the time is over")

// DialContext dials with one of f.Dialers after the other until one connects.
// The connection is as that one made it. When it returns, all that it started
// has ended: it waits for the Dialers that it has cancelled.
//
// A failure is an [*Error] whose cause, found by errors.As, is the [Failures]:
// which Dialers failed, and why. Its Phase and Status are those of the last
// one. If ctx has ended, the error is ctx's as well.
func (f *Failover) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := &failoverDial{Failover: f, network: network, address: address}
	if err := f.check(); err != nil {
		return nil, &Error{Op: opFailover, Phase: PhaseConfig, Addr: address, Err: err}
	}
	d.order = f.order(time.Now())
	if f.Hedge > 0 {
		return d.hedged(ctx)
	}
	return d.inTurn(ctx)
}

func (f *Failover) check() error {
	if len(f.Dialers) == 0 {
		return errors.New("field Dialers is required: at least one")
	}
	if i := slices.IndexFunc(f.Dialers, isNil); i >= 0 {
		return fmt.Errorf("field Dialers: member %d of %d is nil", i+1, len(f.Dialers))
	}
	return nil
}

// order returns the members in the order in which to try them.
func (f *Failover) order(now time.Time) []int {
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

func (f *Failover) worked(member int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.failed, member)
}

func (f *Failover) broke(member int, now time.Time) {
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

// attempt is the end of a dial with one member.
type attempt struct {
	place int // of the member in order
	conn  net.Conn
	err   error
	again bool // after err, the next member is tried
}

// try dials with one member, for at most limit if that is not zero, and notes
// how it went.
func (d *failoverDial) try(ctx context.Context, place int, limit time.Duration) attempt {
	member := d.order[place]
	own := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		own, cancel = context.WithTimeoutCause(ctx, limit, errShare)
		defer cancel()
	}
	conn, err := d.Dialers[member].DialContext(own, d.network, d.address)
	if conn == nil && err == nil {
		err = errNothing
	}
	switch {
	case err == nil:
		d.worked(member)
		return attempt{place: place, conn: conn}
	case ctx.Err() != nil:
		return attempt{place: place, err: err} // whatever it says: it had no chance
	}
	retry := d.Retry
	if retry == nil {
		retry = ProxyFailed
	}
	again := retry(err)
	if again && !targetFailed(err) {
		d.broke(member, time.Now())
	}
	return attempt{place: place, err: err, again: again}
}

func (d *failoverDial) lost(a attempt) {
	d.failures = append(d.failures, Failure{Member: d.order[a.place], Err: a.err})
}

func (d *failoverDial) inTurn(ctx context.Context) (net.Conn, error) {
	for place := range d.order {
		a := d.try(ctx, place, share(ctx, len(d.order)-place))
		if a.err == nil {
			return a.conn, nil
		}
		d.lost(a)
		if !a.again {
			break
		}
	}
	return nil, d.fail(ctx)
}

// race is a dial whose members run side by side.
type race struct {
	*failoverDial
	wg      sync.WaitGroup
	results chan attempt
	pending []bool   // by place
	next    int      // the place to start
	end     int      // the place from which on none counts
	no      *attempt // what end is there for: it counts when all before have failed
}

// hedged starts each member when the one before it has failed, or has not
// answered for long enough.
func (d *failoverDial) hedged(ctx context.Context) (net.Conn, error) {
	n := len(d.order)
	r := &race{failoverDial: d, results: make(chan attempt, n), pending: make([]bool, n), end: n}
	each, cancel := context.WithCancel(ctx)
	defer func() { cancel(); r.clear() }()
	timer := time.NewTimer(d.patience(ctx, n))
	defer timer.Stop()
	for {
		// The first one says what has become of ctx.
		if r.next == 0 || r.next < r.end && ctx.Err() == nil {
			timer.Reset(d.patience(ctx, n-r.next))
			r.start(each)
		}
		if !slices.Contains(r.pending[:r.end], true) {
			break
		}
		select {
		case <-timer.C:
		case a := <-r.results:
			if conn := r.take(a); conn != nil {
				return conn, nil
			}
		}
	}
	if r.no != nil {
		d.lost(*r.no)
	}
	return nil, d.fail(ctx)
}

func (r *race) start(ctx context.Context) {
	place := r.next
	r.next++
	r.pending[place] = true
	r.wg.Go(func() { r.results <- r.try(ctx, place, 0) })
}

// take returns the connection of a if that wins.
func (r *race) take(a attempt) net.Conn {
	r.pending[a.place] = false
	switch {
	case a.place >= r.end:
		a.drop()
	case a.err == nil:
		return a.conn
	case a.again:
		r.lost(a)
	default:
		r.no, r.end = &a, a.place
	}
	return nil
}

// clear waits for the members that are still running, which were cancelled.
func (r *race) clear() {
	r.wg.Wait()
	close(r.results)
	for a := range r.results {
		a.drop()
	}
}

// drop closes the connection of a member that came too late.
func (a attempt) drop() {
	if a.conn != nil {
		abort.Close(a.conn)
	}
}

// patience is how long a member may take before the next is started.
func (d *failoverDial) patience(ctx context.Context, left int) time.Duration {
	if s := share(ctx, left); s > 0 {
		return min(s, d.Hedge)
	}
	return d.Hedge
}

// share is the part of the time until ctx's deadline that one of so many
// members may take. Zero means all of it, and so does what is longer.
func share(ctx context.Context, members int) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || members == 1 {
		return 0
	}
	return max(time.Until(deadline)/time.Duration(members), minShare)
}

func (d *failoverDial) fail(ctx context.Context) error {
	last := d.failures[len(d.failures)-1].Err
	e := &Error{Op: opFailover, Phase: PhaseTCP, Addr: d.address, Err: d.failures}
	if cause := decisive(last); cause != nil {
		e.Phase, e.Status = cause.Phase, cause.Status
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(last, ended) {
		e.Err = fmt.Errorf("%w: %w", contextError(ctx, ended), d.failures)
	}
	return e
}
