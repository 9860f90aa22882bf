package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"golang.org/x/net/proxy"
)

// ToProxy returns d as a dialer of golang.org/x/net/proxy, for what takes one
// (the forward of [proxy.SOCKS5], the functions of RegisterDialerType). It is
// a [proxy.ContextDialer] too. Its Dial is a DialContext that no context
// bounds.
func ToProxy(d Dialer) proxy.Dialer { return toProxy{d} }

type toProxy struct{ Dialer }

var _ proxy.ContextDialer = toProxy{}

func (d toProxy) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// FromProxy returns d as a Dialer whose dials end with their context, and
// whose errors are an [*Error] that keeps d's.
//
// Where d is a [proxy.ContextDialer], its DialContext is used. Where it has
// Dial alone, that runs on a goroutine of its own: when the context ends, the
// dial fails at once, and a connection that comes later is closed. The
// goroutine ends when Dial returns, which nothing here can hasten.
//
// x/net's own SOCKS5 has a data race on cancel if its forward dialer has no
// DialContext: pass ToProxy(FromProxy(forward)) to it.
func FromProxy(d proxy.Dialer) Dialer {
	if ours, ok := d.(toProxy); ok {
		return ours.Dialer
	}
	return fromProxy{d}
}

type fromProxy struct{ proxy.Dialer }

func (d fromProxy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err == nil {
		return conn, nil
	}
	if e, ok := err.(*Error); ok {
		return nil, e
	}
	return nil, &Error{Op: opProxy, Phase: PhaseTCP, Addr: address, Err: contextError(ctx, err)}
}

func (d fromProxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// PerHost hands dialers without DialContext to x/net's own goroutine, which
	// races with a cancel.
	_, perHost := d.Dialer.(*proxy.PerHost)
	if cd, ok := d.Dialer.(proxy.ContextDialer); ok && !perHost {
		return cd.DialContext(ctx, network, address)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result) // without a buffer: a conn is taken or closed
	go func() {
		conn, err := d.Dial(network, address)
		select {
		case results <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				conn.Close()
			}
		}
	}()
	select {
	case r := <-results:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// registeredDialer returns the Dialer of a scheme that is registered with
// golang.org/x/net/proxy.
func registeredDialer(u *url.URL, opts *Options) (Dialer, error) {
	xd, err := proxy.FromURL(u, ToProxy(forwardOrDirect(opts.Forward)))
	if err != nil {
		if u.User != nil {
			// What a registered function says may quote the URL.
			err = errors.New("no dialer for the URL (the cause is left out, the URL has user info)")
		}
		return nil, urlError("", fmt.Errorf("golang.org/x/net/proxy, scheme %q: %w", sanitizeText(u.Scheme), err))
	}
	d := FromProxy(xd)
	return Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := withTimeout(ctx, opts.Timeout)
		defer cancel()
		return d.DialContext(ctx, network, address)
	}), nil
}
