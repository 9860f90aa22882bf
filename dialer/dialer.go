package dialer

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"golang.org/x/net/proxy"

	"github.com/causewayproject/causeway/internal/abort"
)

// A Dialer makes connections to network addresses.
//
// It is the method of [net.Dialer] and golang.org/x/net/proxy.ContextDialer:
// a Dialer is accepted wherever those are, and its DialContext method value
// wherever a dial function is ([net/http.Transport], rest.Config, gRPC).
//
// ctx bounds the dial alone, not the life of the connection. The caller closes
// the connection.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

var (
	_ Dialer = Func(nil)
	_ Dialer = Direct{}
	_ Dialer = (*HTTPConnect)(nil)
	_ Dialer = (*SOCKS5)(nil)
	_ Dialer = fromProxy{}

	_ proxy.ContextDialer = Dialer(nil)
)

// Func makes a Dialer of a dial function.
type Func func(ctx context.Context, network, address string) (net.Conn, error)

// DialContext calls f.
func (f Func) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

const (
	defaultTimeout   = 30 * time.Second
	defaultKeepAlive = 30 * time.Second
)

var defaultDialer = net.Dialer{Timeout: defaultTimeout, KeepAlive: defaultKeepAlive} // never written to

// Direct dials without a proxy. Its zero value is ready to use and safe for
// concurrent use.
type Direct struct {
	// Dialer makes the connections. If nil, a net.Dialer with a timeout and a
	// keepalive of 30 seconds.
	Dialer *net.Dialer
}

// DialContext connects to address. A failure is an [*Error] of [PhaseDNS] or
// [PhaseTCP] that keeps the error of package net.
func (d Direct) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	nd := d.Dialer
	if nd == nil {
		nd = &defaultDialer
	}
	if t := contextTrace(ctx); t != nil {
		return d.traced(ctx, t, nd, network, address)
	}
	conn, err := nd.DialContext(ctx, network, address)
	if err != nil {
		return nil, directError(ctx, address, err)
	}
	return conn, nil
}

// traced splits what net.Dialer does in one call into the phases that a
// person waits for.
func (d Direct) traced(ctx context.Context, t *Trace, nd *net.Dialer, network, address string) (net.Conn, error) {
	// Attempts run side by side, and a hook may be called after the dial.
	var (
		dns, tcp atomic.Pointer[span]
		begun    atomic.Bool
	)
	conn, err := nd.DialContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { dns.Store(t.start(PhaseDNS, "", address)) },
		DNSDone:  func(info httptrace.DNSDoneInfo) { dns.Load().done(info.Err) },
		ConnectStart: func(_, _ string) {
			if begun.CompareAndSwap(false, true) {
				tcp.Store(t.start(PhaseTCP, "", address))
			}
		},
	}), network, address)
	if err != nil {
		err = directError(ctx, address, err)
	}
	tcp.Load().done(err)
	return conn, err
}

func directError(ctx context.Context, address string, err error) error {
	phase := PhaseTCP
	var dns *net.DNSError
	if errors.As(err, &dns) {
		phase = PhaseDNS
	}
	return &Error{Op: opDirect, Phase: phase, Addr: address, Err: contextError(ctx, err)}
}

// handshake runs f, which speaks to a proxy over conn, and closes conn when
// ctx ends before f returns or when f fails. Deadlines are left alone: there
// is none to clear afterwards, and a conn that ignores them can't hang.
func handshake(ctx context.Context, conn net.Conn, f func() error) error {
	stop := context.AfterFunc(ctx, func() { abort.Close(conn) })
	err := f()
	if !stop() {
		// ctx ended: the conn is closed, or about to be.
		return contextError(ctx, ctx.Err())
	}
	if err != nil {
		abort.Close(conn)
		return err
	}
	return nil
}

// forwardError is what a dialer says when the one below it could not reach
// the proxy. The words of a direct dial are taken over, the rest is kept whole.
func forwardError(err error) (Phase, error) {
	var inner *Error
	if errors.As(err, &inner) && inner.Op == opDirect {
		return inner.Phase, inner.Err
	}
	return PhaseTCP, err
}
