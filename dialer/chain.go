package dialer

import (
	"errors"
	"fmt"
	"reflect"
)

// Forwarder is a Dialer that can be put behind another one, such as a proxy. [Chain]
// needs it of all its elements but the first.
type Forwarder interface {
	Dialer
	// WithForward returns a copy of the Dialer that dials with forward. It returns an
	// error if the Dialer has a Forward already. The receiver is not changed.
	WithForward(forward Dialer) (Dialer, error)
}

var (
	_ Forwarder = (*HTTPConnect)(nil)
	_ Forwarder = (*SOCKS5)(nil)
)

// WithForward returns a copy of d with this Forward. It returns an error if d has one
// already, which would be ignored.
func (d *HTTPConnect) WithForward(forward Dialer) (Dialer, error) {
	c := *d
	return withForward(&c, &c.Forward, forward)
}

// WithForward returns a copy of d with this Forward. It returns an error if d has one
// already, which would be ignored.
func (d *SOCKS5) WithForward(forward Dialer) (Dialer, error) {
	c := *d
	return withForward(&c, &c.Forward, forward)
}

// withForward sets the field Forward of a copy, and returns the copy.
func withForward(c Dialer, field *Dialer, forward Dialer) (Dialer, error) {
	if *field != nil {
		return nil, errors.New("field Forward is set: in a chain only the first element may have one")
	}
	*field = forward
	return c, nil
}

// Chain returns a Dialer that reaches each proxy through the one before it, and the
// target through the last. The first may be any Dialer. The others must be a
// [Forwarder] without a Forward, such as *HTTPConnect and *SOCKS5; Chain copies them.
// Each proxy has its own TLS configuration, credentials and Timeout. A Timeout also
// bounds the dials of the proxies before, so the last one's bounds the whole dial.
//
// If an element can't be used, the error is an [*Error] of [PhaseConfig] that says
// which. The error of a dial is the last proxy's. If that proxy gave no answer, the
// cause is the error of the proxy before it, and so on.
//
// The Dialer is safe for concurrent use if its elements are. A dial that fails
// leaves nothing open.
func Chain(proxies ...Dialer) (Dialer, error) {
	if len(proxies) == 0 {
		return nil, chainError(errors.New("no proxy: at least one is required"))
	}
	var chain Dialer
	for i, p := range proxies {
		next, err := appendProxy(chain, p)
		if err != nil {
			return nil, chainError(fmt.Errorf("proxy %d of %d: %w", i+1, len(proxies), err))
		}
		chain = next
	}
	return chain, nil
}

// appendProxy puts p behind chain, which is nil for the first.
func appendProxy(chain, p Dialer) (Dialer, error) {
	if isNil(p) {
		return nil, errors.New("the Dialer is nil")
	}
	if chain == nil {
		return p, nil
	}
	f, ok := p.(Forwarder)
	if !ok {
		return nil, fmt.Errorf("a %T can't be put behind another Dialer: it has no method WithForward", p)
	}
	next, err := f.WithForward(chain)
	if err == nil && isNil(next) {
		err = fmt.Errorf("the method WithForward of %T returned nil", p)
	}
	return next, err
}

func chainError(err error) error {
	return &Error{Op: "chain", Phase: PhaseConfig, Err: err}
}

// isNil reports whether d is nil, or an interface with a nil pointer or function.
func isNil[D any](d D) bool {
	if any(d) == nil {
		return true
	}
	switch v := reflect.ValueOf(d); v.Kind() {
	case reflect.Pointer, reflect.Func:
		return v.IsNil()
	}
	return false
}
