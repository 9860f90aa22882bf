package dialer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"golang.org/x/net/http2"
)

const protoHTTP2 = "h2"

// HTTP2 keeps the connections to https proxies that speak HTTP/2, so that many dials
// share one (RFC 9113, section 8.5). It is for the field HTTP2 of [HTTPConnect]. The
// zero value is ready to use and safe for concurrent use. It must not be copied. The
// caller closes it.
//
// Each *HTTPConnect has connections of its own, so no dial can use the TLS
// configuration or the credentials of another one: make one *HTTPConnect and keep it.
// It has a second connection only while the proxy allows no more streams on the first,
// or has announced that it will close the first (GOAWAY). If the proxy chooses
// HTTP/1.1, dials are made as without HTTP2.
//
// A dial returns a stream as its connection. A stream has CloseWrite, and deadlines
// that affect no other stream. Read returns io.EOF only if the target has ended; if the
// proxy has ended the stream or the connection, the error is a [syscall.ECONNRESET]. A
// stream has two goroutines until it is closed.
//
// Close of a stream returns at once. Bytes that Write took are still sent. The stream is
// reset when the proxy has taken all of them, and the target has not ended within twice
// the time that the dial took (at least 50 ms); or after 5 seconds.
//
// Schemes that authenticate a connection (NTLM, Negotiate) need HTTP/1.1. If net/http
// has no HTTP/2 (GODEBUG=http2client=0, or the build tag nethttpomithttp2), HTTP2 can't
// be used. Build with Go 1.26.9 or newer: before, dials and Close hang if a proxy opens the
// window of a stream beyond 2^31-1 bytes, and with 1,000 streams each SETTINGS frame that a
// proxy sends takes 20 ms of CPU time.
type HTTP2 struct {
	// IdleTimeout is how long a connection without streams is kept. If zero, it is 90
	// seconds; if negative, it is never closed.
	IdleTimeout time.Duration
	// PingInterval is how long a proxy may be silent before it gets a PING. If zero, it
	// is 15 seconds; if negative, no PING is sent.
	PingInterval time.Duration
	// PingTimeout is how long the answer to a PING, or a write without progress, may
	// take before the connection is closed. If zero, it is 15 seconds.
	PingTimeout time.Duration

	mu      sync.Mutex // guards the fields below
	closed  bool
	proxies map[weak.Pointer[HTTPConnect]]*http2Proxy
	conns   map[*http2Conn]struct{} // the draining ones too
	streams map[*http2Stream]struct{}
	wg      sync.WaitGroup // one for each of streams
}

// http2Proxy is the state of an HTTPConnect's proxy. The key in HTTP2.proxies is a weak
// pointer, so that an HTTPConnect that is not used any more can be freed.
type http2Proxy struct {
	conns   []*http2Conn
	dialing *http2Call // until its connection can be shared; nil: none
	http1   bool       // the proxy has chosen HTTP/1.1: dials need not wait for each other
}

// http2Call is a dial to the proxy. Other dials wait for its result.
type http2Call struct {
	done  chan struct{}         // closed when err is set
	err   error                 // nil also if the caller of this dial has cancelled it
	phase atomic.Pointer[Event] // that has begun last
}

// maxHTTP2Attempts is how many connections a dial tries, if they turn out to be closing.
const maxHTTP2Attempts = 3

var (
	errHTTP2Closed    = fmt.Errorf("field HTTP2 was closed: %w", net.ErrClosed)
	errHTTP2NoStreams = errors.New("the connection takes no more streams")
	errHTTP2CutOff    = fmt.Errorf("the proxy closed the connection: %w", io.ErrUnexpectedEOF)
	errHTTP2Status    = errors.New("the proxy sent a :status that is not three digits from 200 to 999")
	errHTTP2Length    = errors.New("the proxy sent a Content-Length with its 2xx answer, after which net/http would end the tunnel: set HTTP2 to nil")
)

// Close closes all connections and so all streams, and waits for their
// goroutines. Later dials fail with [net.ErrClosed].
func (p *HTTP2) Close() error {
	p.mu.Lock()
	p.closed = true
	conns, streams := p.conns, slices.Collect(maps.Keys(p.streams))
	p.conns, p.proxies = nil, nil
	p.mu.Unlock()
	for cc := range conns {
		cc.Close()
	}
	for _, s := range streams {
		s.abortStream(errHTTP2Closed)
	}
	p.wg.Wait()
	return nil
}

// openStream returns a stream that is connected to the target of h, or a connection to
// a proxy that has chosen HTTP/1.1.
func (p *HTTP2) openStream(ctx context.Context, h *httpDial) (conn, stream net.Conn, err error) {
	header, err := h.requestHeader(ctx)
	if err != nil {
		return nil, nil, h.newError(ctx, PhaseConfig, err)
	}
	for attempt := 1; ; attempt++ {
		cc, conn, fresh, err := p.getConn(ctx, h)
		if err != nil || conn != nil {
			return conn, nil, err
		}
		s, err := p.connectStream(ctx, h, cc, header)
		if err == nil {
			return nil, s, nil
		}
		if fresh && !errors.Is(err, errHTTP2NoStreams) || attempt == maxHTTP2Attempts || ctx.Err() != nil || !cc.mayRetry(err) {
			return nil, nil, h.newError(ctx, PhaseConnect, err)
		}
	}
}

// getConn returns a connection with a stream reserved on it, or a connection that
// speaks HTTP/1.1. fresh says that this call has made the connection.
func (p *HTTP2) getConn(ctx context.Context, h *httpDial) (cc *http2Conn, conn net.Conn, fresh bool, err error) {
	for began := time.Now(); ; {
		cc, call, mine, err := p.reserveStream(h.HTTPConnect)
		switch {
		case err != nil:
			return nil, nil, false, h.newError(ctx, PhaseConnect, err)
		case cc != nil:
			return cc, nil, false, nil
		case mine:
			cc, conn, err = p.dialShared(ctx, h, call)
			return cc, conn, true, err
		}
		select {
		case <-call.done:
		case <-ctx.Done():
			at := *call.phase.Load()
			if at.Phase == PhaseConnect {
				at.Addr = h.target.authority
			}
			err := h.newError(ctx, at.Phase, ctx.Err())
			if s := h.trace.startPhase(at.Phase, at.Proxy, at.Addr); s != nil {
				s.event.Began = began
				s.endPhase(err)
			}
			return nil, nil, false, err
		}
		if e, ok := errors.AsType[*Error](call.err); ok {
			shared := *e
			shared.Addr = h.address
			return nil, nil, false, &shared
		}
	}
}

// reserveStream finds a connection for d and reserves a stream on it. If no
// connection has room, it returns the dial of a new one. With mine the caller makes
// that dial, otherwise the caller waits for it.
func (p *HTTP2) reserveStream(d *HTTPConnect) (cc *http2Conn, call *http2Call, mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, false, errHTTP2Closed
	}
	p.pruneConnsLocked()
	key := weak.Make(d)
	proxy := p.proxies[key]
	if proxy == nil {
		if p.proxies == nil {
			p.proxies = map[weak.Pointer[HTTPConnect]]*http2Proxy{}
			p.conns = map[*http2Conn]struct{}{}
		}
		proxy = &http2Proxy{}
		p.proxies[key] = proxy
	}
	for _, cc := range proxy.conns {
		if cc.Available() > cc.challenged && cc.Reserve() == nil {
			return cc, nil, false, nil
		}
	}
	if proxy.http1 {
		return nil, nil, true, nil
	}
	if proxy.dialing != nil {
		return nil, proxy.dialing, false, nil
	}
	proxy.dialing = &http2Call{done: make(chan struct{})}
	proxy.dialing.phase.Store(&Event{Phase: PhaseTCP, Addr: d.Addr})
	return nil, proxy.dialing, true, nil
}

// pruneConnsLocked removes closed connections, and proxies without a connection.
func (p *HTTP2) pruneConnsLocked() {
	maps.DeleteFunc(p.conns, func(cc *http2Conn, _ struct{}) bool { return cc.Err() != nil })
	for d, proxy := range p.proxies {
		proxy.conns = slices.DeleteFunc(proxy.conns, func(cc *http2Conn) bool {
			_, ok := p.conns[cc]
			return !ok
		})
		if len(proxy.conns) == 0 && proxy.dialing == nil && (!proxy.http1 || d.Value() == nil) {
			delete(p.proxies, d)
		}
	}
}

// dialShared connects to the proxy for h, and for all dials that wait for call. A nil
// call means that no dial waits.
func (p *HTTP2) dialShared(ctx context.Context, h *httpDial, call *http2Call) (cc *http2Conn, http1 net.Conn, err error) {
	defer func() {
		if cc == nil {
			p.finishCall(ctx, h.HTTPConnect, call, nil, err)
			return
		}
		// net/http lets a request wait, maybe for ever, on a connection without free
		// streams. So others get this one only when the proxy's SETTINGS are known.
		context.AfterFunc(cc.settled, func() { p.finishCall(ctx, h.HTTPConnect, call, cc, nil) })
	}()
	conn, err := h.dialProxy(h.tracePhases(ctx, call))
	if err != nil {
		return nil, nil, err
	}
	tc := conn.(*tls.Conn)
	if tc.ConnectionState().NegotiatedProtocol != protoHTTP2 {
		return nil, conn, nil
	}
	err = handshake(ctx, conn, func() error {
		cc, err = p.newConn(ctx, tc)
		return err
	})
	if err != nil {
		return nil, nil, h.newError(ctx, PhaseConnect, err)
	}
	if err := p.addConn(cc); err != nil {
		cc.Close()
		return nil, nil, h.newError(ctx, PhaseConnect, err)
	}
	return cc, nil, nil
}

// tracePhases returns the context of the dial, and has call, unless it is nil, know of its
// phases.
func (h *httpDial) tracePhases(ctx context.Context, call *http2Call) context.Context {
	outer := cmp.Or(h.trace, &Trace{})
	h.trace = &Trace{Done: outer.Done, Start: func(e Event) {
		if call != nil && (e.Proxy == h.displayName() || e.Proxy == "" && e.Addr == h.proxy.address) { // not those of a hop before
			call.phase.Store(&e)
		}
		if outer.Start != nil {
			outer.Start(e)
		}
	}}
	return WithTrace(ctx, h.trace)
}

// addConn adds cc, and reserves a stream on it for the caller.
func (p *HTTP2) addConn(cc *http2Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errHTTP2Closed
	}
	if cc.Reserve() != nil {
		return cc.wire.failureCause(nil, errHTTP2CutOff)
	}
	p.conns[cc] = struct{}{}
	return nil
}

// finishCall gives the result to the dials that wait for call.
func (p *HTTP2) finishCall(ctx context.Context, d *HTTPConnect, call *http2Call, cc *http2Conn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if proxy := p.proxies[weak.Make(d)]; proxy != nil {
		if err == nil {
			proxy.http1 = cc == nil
		}
		if cc != nil {
			proxy.conns = append(proxy.conns, cc)
		}
		if proxy.dialing == call {
			proxy.dialing = nil
		}
	}
	if call != nil {
		// If the caller has cancelled its dial, that is no error for the others.
		if ctx.Err() == nil {
			call.err = err
		}
		close(call.done)
	}
}

// addStream adds s, so that Close ends it and waits for both of its goroutines.
func (p *HTTP2) addStream(s *http2Stream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errHTTP2Closed
	}
	if p.streams == nil {
		p.streams = map[*http2Stream]struct{}{}
	}
	p.streams[s] = struct{}{}
	p.wg.Add(1)
	return nil
}

func (p *HTTP2) removeStream(s *http2Stream) {
	p.mu.Lock()
	delete(p.streams, s)
	p.mu.Unlock()
	p.wg.Done()
}

// newConn starts HTTP/2 on tc.
func (p *HTTP2) newConn(ctx context.Context, tc *tls.Conn) (*http2Conn, error) {
	settled, settle := context.WithCancel(context.Background())
	pingTimeout := defaultDuration(p.PingTimeout, 15*time.Second)
	wire := newHTTP2Wire(tc, pingTimeout, settle)
	// The transport only has the configuration, and tc by its DialContext. It does not
	// know of the TLS, so it uses HTTP/2 by prior knowledge.
	t := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return wire, nil },
		Protocols:              new(http.Protocols),
		DisableCompression:     true,
		IdleConnTimeout:        defaultDuration(p.IdleTimeout, 90*time.Second),
		MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: 1 << 20,
			MaxReadFrameSize:          http2FrameSize,
			SendPingTimeout:           defaultDuration(p.PingInterval, 15*time.Second),
			PingTimeout:               pingTimeout,
			WriteByteTimeout:          pingTimeout,
		},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	cc, err := t.NewClientConn(ctx, "http", "proxy:80") // the name is not dialed
	if err != nil {
		return nil, err
	}
	return newHTTP2Conn(cc, wire, settled), nil
}

// defaultDuration returns d, or byDefault if d is zero, or zero if d is negative.
func defaultDuration(d, byDefault time.Duration) time.Duration {
	return max(cmp.Or(d, byDefault), 0)
}

// http2Conn is a connection that speaks HTTP/2.
type http2Conn struct {
	*http.ClientConn
	wire    *http2Wire
	settled context.Context // done when the proxy's SETTINGS are known

	challenged int // dials that got a 407 and need another stream; guarded by HTTP2.mu

	mu      sync.Mutex    // guards changed
	changed chan struct{} // closed at the next change of the ClientConn's state
}

func newHTTP2Conn(c *http.ClientConn, wire *http2Wire, settled context.Context) *http2Conn {
	cc := &http2Conn{ClientConn: c, wire: wire, settled: settled, changed: make(chan struct{})}
	c.SetStateHook(func(*http.ClientConn) {
		cc.mu.Lock()
		defer cc.mu.Unlock()
		close(cc.changed)
		cc.changed = make(chan struct{})
	})
	return cc
}

// mayRetry reports whether a request that failed with err may be sent again on another
// connection: the proxy has not answered it, because it was about to close this one or
// has refused the stream.
func (cc *http2Conn) mayRetry(err error) bool {
	var ours *Error
	var reset *resetError
	switch {
	case errors.As(err, &ours), errors.Is(err, errHTTP2Status), errors.Is(err, errHTTP2Length):
		return false
	case errors.Is(err, errHTTP2NoStreams):
		return true
	case errors.As(err, &reset):
		return reset.stream.Code == http2.ErrCodeRefusedStream
	case errors.As(err, &http2.StreamError{}):
		return false
	}
	// The connection failed, or it could not send the request. A connection that has
	// announced its end has no stream available.
	return cc.Err() != nil || cc.Available() == 0
}
