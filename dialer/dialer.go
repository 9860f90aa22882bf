package dialer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"golang.org/x/net/proxy"
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
		return d.dialTraced(ctx, t, nd, network, address)
	}
	conn, err := nd.DialContext(ctx, network, address)
	if err != nil {
		return nil, directError(ctx, address, err)
	}
	return conn, nil
}

// dialTraced splits what net.Dialer does in one call into the phases that a
// person waits for.
func (d Direct) dialTraced(ctx context.Context, t *Trace, nd *net.Dialer, network, address string) (net.Conn, error) {
	// Attempts run side by side, and a hook may be called after the dial.
	var (
		dns, tcp atomic.Pointer[phaseSpan]
		begun    atomic.Bool
	)
	conn, err := nd.DialContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { dns.Store(t.startPhase(PhaseDNS, "", address)) },
		DNSDone:  func(info httptrace.DNSDoneInfo) { dns.Load().endPhase(info.Err) },
		ConnectStart: func(_, _ string) {
			if begun.CompareAndSwap(false, true) {
				tcp.Store(t.startPhase(PhaseTCP, "", address))
			}
		},
	}), network, address)
	if err != nil {
		err = directError(ctx, address, err)
	}
	tcp.Load().endPhase(err)
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

// Trace observes the phases of a dial. Each hook may be nil. Hooks are called
// on the goroutine of the dial or of one that it started, from several at once
// where the addresses of a name are tried side by side ([Resolve],
// SOCKS5.Resolver), and must not block.
type Trace struct {
	// Start is called when a phase begins.
	Start func(Event)
	// Done is called when it has ended, with its duration and error.
	Done func(Event)
}

// Event is one phase of a dial.
type Event struct {
	Phase Phase
	// Proxy is the proxy as scheme://host:port, without user info, for the
	// phases that speak to one.
	Proxy string
	// Addr is what is dialed: the proxy's address in the phases that lead to
	// it, the target's where the proxy is asked for it.
	Addr string
	// Began is when the phase began.
	Began time.Time
	// Duration is how long it took. Zero in Start.
	Duration time.Duration
	// TLS is the state of the connection to an https proxy, at the end of a
	// PhaseTLS that succeeded. It must not be modified.
	TLS *tls.ConnectionState
	// Err is the error of a phase that failed.
	Err error
}

type traceKey struct{}

// WithTrace returns a context whose dials are observed by t, as
// net/http/httptrace does it for requests. It replaces a Trace that ctx
// carries already.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

func contextTrace(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}

// A span is a phase that has begun. A nil span observes nothing.
type phaseSpan struct {
	trace *Trace
	event Event
}

func (t *Trace) startPhase(phase Phase, proxy, addr string) *phaseSpan {
	if t == nil {
		return nil
	}
	s := &phaseSpan{t, Event{Phase: phase, Proxy: proxy, Addr: addr, Began: time.Now()}}
	if t.Start != nil {
		t.Start(s.event)
	}
	return s
}

func (s *phaseSpan) endPhase(err error) {
	if s == nil || s.trace.Done == nil {
		return
	}
	s.event.Duration = time.Since(s.event.Began)
	s.event.Err = err
	s.trace.Done(s.event)
}

// Transport returns a new http.Transport that makes its connections with d
// and reads no proxy from the environment. It speaks HTTP/2 where the server
// does, and notices a dead HTTP/2 connection within 45 seconds. The caller
// may change it before its first use, and closes its idle connections.
func Transport(d Dialer) *http.Transport {
	return &http.Transport{
		DialContext:           d.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   25,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
		},
	}
}
