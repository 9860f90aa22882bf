package dialer

import (
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
	"time"
	"weak"

	"golang.org/x/net/http2"
)

const protoHTTP2 = "h2"

// HTTP2 keeps the connections to https proxies that speak HTTP/2, so that one
// is shared by many dials (RFC 9113, section 8.5). It is the field of that
// name of [HTTPConnect]. The zero value is ready to use and safe for
// concurrent use; it must not be copied.
//
// Each *HTTPConnect has connections of its own, whose TLS and credentials no
// other one can end up on: make one and keep it. There is a second connection
// only while the proxy allows no more streams on the first, or has announced
// that it closes it (GOAWAY). A proxy that chooses HTTP/1.1 is spoken to as
// without HTTP2.
//
// The connections that a dial returns are streams: they have CloseWrite, and
// deadlines that harm no other stream. Read returns io.EOF only where the
// target has ended; a stream or a connection that the proxy broke off is
// [syscall.ECONNRESET]. Until it is closed, a stream has two goroutines.
//
// Close returns at once. What was written is still sent: the stream is reset
// only when the proxy has taken all of it, and the target has not ended it
// within twice the time that the dial took (50 ms at least), and in any case
// after 5 seconds.
//
// Schemes that authenticate a connection (NTLM, Negotiate) need HTTP/1.1. A
// program whose net/http has no HTTP/2 (GODEBUG=http2client=0, or the build tag
// nethttpomithttp2) must leave it nil.
type HTTP2 struct {
	// IdleTimeout closes a connection that has had no stream for so long. If
	// zero, 90 seconds; if negative, never.
	IdleTimeout time.Duration
	// PingInterval is how long a proxy may be silent before it is asked for a
	// sign of life. If zero, 15 seconds; if negative, it is never asked.
	PingInterval time.Duration
	// PingTimeout is how long the proxy has to answer, and how long a write
	// may stand still, before the connection is given up. If zero, 15 seconds.
	PingTimeout time.Duration

	mu      sync.Mutex // guards the fields below
	closed  bool
	proxies map[weak.Pointer[HTTPConnect]]*http2Proxy
	conns   map[*http2Conn]struct{} // those that drain as well
	streams map[*http2Stream]struct{}
	wg      sync.WaitGroup // one for each of streams
}

// http2Proxy is what is known of the proxy of an HTTPConnect. It does not keep
// one that is used no more.
type http2Proxy struct {
	conns   []*http2Conn
	dialing *http2Call // until its connection can be shared; nil if there is none
	http1   bool       // it has chosen HTTP/1.1: dials need not wait for each other
}

// http2Call is a dial to the proxy whose outcome others wait for.
type http2Call struct {
	done chan struct{} // closed when err is set
	err  error         // nil also if the dial was given up by its own caller
}

// maxHTTP2Attempts bounds how many connections that are about to close a dial
// may come upon.
const maxHTTP2Attempts = 3

var (
	errHTTP2Closed    = fmt.Errorf("field HTTP2 was closed: %w", net.ErrClosed)
	errHTTP2NoStreams = errors.New("the connection takes no more streams")
	errHTTP2CutOff    = fmt.Errorf("the proxy closed the connection: %w", io.ErrUnexpectedEOF)
	errHTTP2Length    = errors.New("the proxy sent a Content-Length with its success, which net/http would end the tunnel at: leave HTTP2 nil")
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

// openStream returns a stream to the target of h, or a connection to a proxy that
// has chosen HTTP/1.1.
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

// getConn returns a connection with a stream reserved on it, which is fresh if
// this call has made it, or a connection that speaks HTTP/1.1.
func (p *HTTP2) getConn(ctx context.Context, h *httpDial) (cc *http2Conn, conn net.Conn, fresh bool, err error) {
	for {
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
			return nil, nil, false, h.newError(ctx, PhaseTCP, ctx.Err())
		}
		var e *Error
		if errors.As(call.err, &e) {
			shared := *e
			shared.Addr = h.address
			return nil, nil, false, &shared
		}
	}
}

// reserveStream finds a connection for d. If there is none, it returns the dial to
// wait for, or one that is the caller's to make.
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
	return nil, proxy.dialing, true, nil
}

// pruneConnsLocked forgets connections that are closed, and proxies without one.
func (p *HTTP2) pruneConnsLocked() {
	for cc := range p.conns {
		if cc.Err() != nil {
			delete(p.conns, cc)
		}
	}
	for d, proxy := range p.proxies {
		live := proxy.conns[:0]
		for _, cc := range proxy.conns {
			if _, ok := p.conns[cc]; ok {
				live = append(live, cc)
			}
		}
		clear(proxy.conns[len(live):])
		proxy.conns = live
		if len(live) == 0 && proxy.dialing == nil && (!proxy.http1 || d.Value() == nil) {
			delete(p.proxies, d)
		}
	}
}

// dialShared connects to the proxy for h and for all who wait for call, which is nil
// if nobody may.
func (p *HTTP2) dialShared(ctx context.Context, h *httpDial, call *http2Call) (cc *http2Conn, http1 net.Conn, err error) {
	defer func() {
		if cc == nil {
			p.finishCall(ctx, h.HTTPConnect, call, nil, err)
			return
		}
		// On a connection that is full a request waits, maybe for ever: nobody
		// else gets this one before it is known how many it takes.
		context.AfterFunc(cc.settled, func() { p.finishCall(ctx, h.HTTPConnect, call, cc, nil) })
	}()
	conn, err := h.dialProxy(ctx)
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

// addConn takes cc over, with a stream reserved for the caller.
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

// finishCall tells those who wait for call how it ended.
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
		// Whoever gave up did so for itself alone.
		if ctx.Err() == nil {
			call.err = err
		}
		close(call.done)
	}
}

// addStream takes s over: Close ends it, and waits for both of its parts.
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

// newConn speaks HTTP/2 on tc.
func (p *HTTP2) newConn(ctx context.Context, tc *tls.Conn) (*http2Conn, error) {
	settled, settle := context.WithCancel(context.Background())
	pingTimeout := defaultDuration(p.PingTimeout, 15*time.Second)
	wire := newHTTP2Wire(tc, pingTimeout, settle)
	// The transport does no more than carry the configuration and tc. It need
	// not know of the TLS: who negotiated HTTP/2 already has prior knowledge.
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
	cc, err := t.NewClientConn(ctx, "http", "proxy:80") // which nobody dials
	if err != nil {
		return nil, err
	}
	return newHTTP2Conn(cc, wire, settled), nil
}

// defaultDuration is d, byDefault if it is zero, and zero if it is negative.
func defaultDuration(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return max(d, 0)
}

// http2Conn is a connection that speaks HTTP/2.
type http2Conn struct {
	*http.ClientConn
	wire    *http2Wire
	settled context.Context // done when the proxy's SETTINGS are known

	challenged int // dials that have given a stream up for another; guarded by HTTP2.mu

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

// stateChange is closed at the next change of the state, after which another stream
// may be possible.
func (cc *http2Conn) stateChange() <-chan struct{} {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	return cc.changed
}

// mayRetry reports whether a request that failed with err may be sent again, on
// another connection: the proxy has given no answer, because it was about to
// close this one or has refused to look at the stream.
func (cc *http2Conn) mayRetry(err error) bool {
	var ours *Error
	var reset *resetError
	switch {
	case errors.As(err, &ours), errors.Is(err, errHTTP2Length):
		return false
	case errors.Is(err, errHTTP2NoStreams):
		return true
	case errors.As(err, &reset):
		return reset.stream.Code == http2.ErrCodeRefusedStream
	case errors.As(err, &http2.StreamError{}):
		return false
	}
	// What is left is a failure of the connection, or from before anything was
	// sent. A connection that has announced its end has none available.
	return cc.Err() != nil || cc.Available() == 0
}
