package dialer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"golang.org/x/net/proxy"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/rotate"
)

// A Dialer makes connections to network addresses.
//
// Its method is that of [net.Dialer] and golang.org/x/net/proxy.ContextDialer. So a
// Dialer can be used in their place, and its DialContext method value as a dial
// function of [net/http.Transport], rest.Config or gRPC.
//
// ctx bounds only the dial, not the life of the connection. The caller closes the
// connection. All Dialers of this package are safe for concurrent use once their
// fields are set.
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

// Func is a dial function as a Dialer.
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
	// Dialer makes the connections. If nil, it is a net.Dialer with a timeout and a
	// keepalive of 30 seconds.
	Dialer *net.Dialer
}

// DialContext connects to address as net.Dialer does. The error is an [*Error] of
// [PhaseDNS] or [PhaseTCP], whose cause is package net's error.
func (d Direct) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	nd := cmp.Or(d.Dialer, &defaultDialer)
	if t := contextTrace(ctx); t != nil {
		return d.dialTraced(ctx, t, nd, network, address)
	}
	conn, err := rotate.Dial(ctx, nd, network, address)
	if err != nil {
		return nil, directError(ctx, address, err)
	}
	return conn, nil
}

// dialTraced is DialContext that calls t's hooks for the lookup and the connect.
func (d Direct) dialTraced(ctx context.Context, t *Trace, nd *net.Dialer, network, address string) (net.Conn, error) {
	// net.Dialer tries several addresses at the same time, and may call a hook after
	// it has returned.
	var (
		dns, tcp atomic.Pointer[phaseSpan]
		begun    atomic.Bool
	)
	conn, err := rotate.Dial(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { dns.Store(t.startPhase(PhaseDNS, "", address)) },
		DNSDone:  func(info httptrace.DNSDoneInfo) { dns.Load().endPhase(info.Err) },
		ConnectStart: func(_, _ string) {
			if begun.CompareAndSwap(false, true) {
				tcp.Store(t.startPhase(PhaseTCP, "", address))
			}
		},
	}), nd, network, address)
	if err != nil {
		err = directError(ctx, address, err)
	}
	tcp.Load().endPhase(err)
	return conn, err
}

func directError(ctx context.Context, address string, err error) error {
	phase := PhaseTCP
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		phase = PhaseDNS
	}
	return &Error{Op: opDirect, Phase: phase, Addr: address, Err: ended.Error(ctx, err)}
}

// Trace has hooks that observe the phases of a dial. Each may be nil. A hook must
// not block. It is called by the goroutine of the dial or by one that the dial
// started, and by several at once if several addresses or Dialers are tried at the
// same time ([Resolve], SOCKS5.Resolver, Failover.Hedge).
type Trace struct {
	// Start is called when a phase begins. A dial that has waited in vain for another
	// one's HTTP/2 connection has one phase, which is told when it fails.
	Start func(Event)
	// Done is called when the phase has ended, with its duration and error.
	Done func(Event)
}

// Event is one phase of a dial.
type Event struct {
	Phase Phase
	// Proxy is the proxy as scheme://host:port, without user info. Empty if the phase
	// speaks to no proxy.
	Proxy string
	// Addr is the address that the phase is about: the proxy's, or the target's in
	// the phase that asks the proxy for it.
	Addr string
	// Began is when the phase began.
	Began time.Time
	// Duration is how long the phase took. Zero in Start.
	Duration time.Duration
	// TLS is the state of the connection to an https proxy, in Done of a PhaseTLS
	// that succeeded; otherwise nil. It must not be modified.
	TLS *tls.ConnectionState
	// ProxyStatus is the last Proxy-Status (RFC 9209) of an HTTP/1.1 proxy's answer that
	// it has connected, of at most 1 KiB, in Done of a PhaseConnect, or of the PhaseAuth
	// of another request with credentials; empty without one. The proxy chooses the text.
	ProxyStatus string
	// Err is the error of the phase, in Done; nil if it succeeded.
	Err error
}

type traceKey struct{}

// WithTrace returns a context in which t observes all dials of this package. It
// replaces a Trace that ctx has already.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

func contextTrace(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}

// phaseSpan is a phase that has begun. A nil one calls no hooks.
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

// Transport returns a new http.Transport that makes its connections with d, and uses
// no proxy of the environment. It speaks HTTP/2 if the server does, and closes a
// dead HTTP/2 connection within 45 seconds. The header of an answer has at most 1 MiB. The
// caller may change the Transport before its first use, and closes its idle connections
// (CloseIdleConnections).
func Transport(d Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            d.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    25,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
		},
	}
}
