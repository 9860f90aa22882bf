package dialer

import (
	"errors"
	"fmt"
	"reflect"
)

// Forwarder is a Dialer that can be put behind another: a proxy. It is what
// [Chain] asks of all its elements but the first.
type Forwarder interface {
	Dialer
	// WithForward returns a copy of the Dialer that reaches its proxy through
	// forward, and an error if it has a way to its proxy already. The receiver
	// is not changed.
	WithForward(forward Dialer) (Dialer, error)
}

var (
	_ Forwarder = (*HTTPConnect)(nil)
	_ Forwarder = (*SOCKS5)(nil)
)

// WithForward returns a copy of d with this Forward. It is an error if d has
// one already, which would be left out.
func (d *HTTPConnect) WithForward(forward Dialer) (Dialer, error) {
	if d.Forward != nil {
		return nil, errForward
	}
	c := *d
	c.Forward = forward
	return &c, nil
}

// WithForward returns a copy of d with this Forward. It is an error if d has
// one already, which would be left out.
func (d *SOCKS5) WithForward(forward Dialer) (Dialer, error) {
	if d.Forward != nil {
		return nil, errForward
	}
	c := *d
	c.Forward = forward
	return &c, nil
}

var errForward = errors.New("field Forward is set: in a chain only the first element may have one")

// Chain returns a Dialer that reaches each proxy through the one before it,
// and the target through the last. The first may be any Dialer; the others are
// a [Forwarder] without a Forward, such as *HTTPConnect and *SOCKS5, of which
// Chain takes copies. Each has its own TLS, credentials and Timeout; the
// Timeout of one bounds the way to it too, so that the last one's bounds the
// dial.
//
// An element that can't be used is an [*Error] of [PhaseConfig] that says
// which. The error of a dial says which hop failed: it is the last proxy's, and
// its cause, unless that proxy answered, is the error of the one before.
//
// The Dialer is safe for concurrent use if its elements are. After an error,
// nothing is left open.
func Chain(proxies ...Dialer) (Dialer, error) {
	if len(proxies) == 0 {
		return nil, chainError(errors.New("no proxy: at least one is required"))
	}
	var way Dialer
	for i, p := range proxies {
		next, err := appendProxy(way, p)
		if err != nil {
			return nil, chainError(fmt.Errorf("proxy %d of %d: %w", i+1, len(proxies), err))
		}
		way = next
	}
	return way, nil
}

// appendProxy puts p behind way, which is nil for the first.
func appendProxy(way, p Dialer) (Dialer, error) {
	if isNil(p) {
		return nil, errors.New("it is nil")
	}
	if way == nil {
		return p, nil
	}
	f, ok := p.(Forwarder)
	if !ok {
		return nil, fmt.Errorf("a %T can't be put behind another Dialer: it has no method WithForward", p)
	}
	next, err := f.WithForward(way)
	if err == nil && isNil(next) {
		err = fmt.Errorf("the method WithForward of %T returned nil", p)
	}
	return next, err
}

func chainError(err error) error {
	return &Error{Op: "chain", Phase: PhaseConfig, Err: err}
}

// isNil reports whether a call of d's method would find no Dialer. A nil
// pointer in an interface is not equal to nil.
func isNil(d Dialer) bool {
	if d == nil {
		return true
	}
	switch v := reflect.ValueOf(d); v.Kind() {
	case reflect.Pointer, reflect.Func:
		return v.IsNil()
	}
	return false
}
