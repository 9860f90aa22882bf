package dialer

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
)

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
	if err := f.check(); err != nil {
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

func (f *Fallback) check() error {
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
