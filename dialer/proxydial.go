package dialer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/ended"
)

// proxyDial is what the dials of HTTPConnect and SOCKS5 have in common.
type proxyDial struct {
	op, scheme string
	dialer     any    // the *HTTPConnect or *SOCKS5
	configured string // its field Addr
	forward    Dialer // its field Forward
	trace      *Trace
	address    string // the address that was asked for
	began      time.Time
	proxy      proxyAddr
	target     target
}

// prepare checks where the proxy is and what it is asked for. Its errors have no
// phase yet.
func (p *proxyDial) prepare(ctx context.Context, network string) (err error) {
	if p.proxy, err = parseProxyAddr(p.configured); err != nil {
		return err
	}
	if p.target, err = parseTarget(network, p.address); err != nil {
		return err
	}
	if p.proxy.isTarget(&p.target) || isLooping(ctx, p.dialer) {
		return ErrLoop
	}
	return nil
}

// connect makes the connection to the proxy, by the Forward.
func (p *proxyDial) connect(ctx context.Context) (net.Conn, error) {
	if p.forward != nil {
		ctx = withOuterDial(ctx, p.dialer)
	}
	conn, err := forwardOrDirect(p.forward).DialContext(ctx, p.proxy.network, p.proxy.address)
	if err == nil {
		return conn, nil
	}
	// The phase and the cause of a direct dial become this error's. The error of
	// another proxy is kept as a whole.
	if direct, ok := errors.AsType[*Error](err); ok && direct.Op == opDirect {
		return nil, p.newError(ctx, direct.Phase, direct.Err)
	}
	return nil, p.newError(ctx, PhaseTCP, err)
}

// displayName returns the proxy for errors and traces, without user info. It is
// empty if the field Addr can't be used, since that may hold a secret.
func (p *proxyDial) displayName() string {
	if p.proxy.network == "" {
		return ""
	}
	return proxyURL(p.scheme, p.configured)
}

func (p *proxyDial) startPhase(phase Phase, addr string) *phaseSpan {
	if p.trace == nil {
		return nil
	}
	return p.trace.startPhase(phase, p.displayName(), addr)
}

// newError returns the error of this dial. An err that is one already, or nil, is
// returned unchanged.
func (p *proxyDial) newError(ctx context.Context, phase Phase, err error) error {
	e, ok := err.(*Error)
	if err == nil || ok && e.Proxy == p.displayName() && e.Addr == p.address {
		return err
	}
	e = &Error{Op: p.op, Phase: phase, Proxy: p.displayName(), Addr: p.address, Err: ended.Error(ctx, err)}
	if context.Cause(ctx) == context.DeadlineExceeded && !errors.As(err, new(*Error)) { // a hop has said it already
		e.Err = fmt.Errorf("%w (the caller's deadline, after %v)", e.Err, time.Since(p.began).Round(time.Millisecond))
	}
	// Only the answer of this proxy counts, not one further down in the chain.
	switch answer := err.(type) {
	case *Refusal:
		e.Status = answer.StatusCode
		// tinyproxy answers 401 to wrong credentials.
		if e.Status == http.StatusProxyAuthRequired || e.Status == http.StatusUnauthorized {
			e.Phase = PhaseAuth
		}
	case SOCKSReply:
		e.Status = int(answer)
	}
	return e
}

// handshake runs f, which speaks to a proxy over conn. It closes conn if f fails, or
// if ctx ends before f returns. It sets no deadlines: none has to be cleared
// afterwards, and a conn that ignores them can't hang the dial.
func handshake(ctx context.Context, conn net.Conn, f func() error) error {
	stop := context.AfterFunc(ctx, func() { abort.Close(conn) })
	err := f()
	if stop() {
		if err != nil {
			abort.Close(conn)
		}
		return err
	}
	abort.Close(conn) // it may be only about to be, and the caller may look
	if e, ok := err.(*Error); ok && (e.Status != 0 || errors.Is(err, ctx.Err())) {
		return err // it knows the phase
	}
	return ended.Error(ctx, ctx.Err())
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d < 0 {
		return ctx, func() {}
	}
	d = cmp.Or(d, defaultTimeout)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return ctx, func() {} // another context would cost seven allocations
	}
	return context.WithTimeoutCause(ctx, d, timeoutError(d))
}

// timeoutError is the cause of a dial's context that the field Timeout has ended.
type timeoutError time.Duration

func (e timeoutError) Error() string {
	return fmt.Sprintf("the dialer's Timeout of %v is over", time.Duration(e))
}

func forwardOrDirect(d Dialer) Dialer { return cmp.Or[Dialer](d, Direct{}) }

// ErrLoop is the cause of an [*Error] if a proxy would be dialed through itself: it
// is the target, or its Forward dials through it again. It is also the cause if a
// [Resolve] needs a lookup of its own for its lookup.
var ErrLoop = errors.New("dialer: the proxy would be dialed through itself")

type outerDialKey struct{}

// outerDial is a dialer that waits for another one: for its Forward, or for the dial
// of its Resolver. The context has the list of them, to find loops.
type outerDial struct {
	dialer any // a pointer
	outer  *outerDial
}

// withOuterDial returns the context for a dial, or a lookup, that d waits for.
func withOuterDial(ctx context.Context, d any) context.Context {
	outer, _ := ctx.Value(outerDialKey{}).(*outerDial)
	return context.WithValue(ctx, outerDialKey{}, &outerDial{d, outer})
}

// isLooping reports whether d waits for the dial that ctx belongs to.
func isLooping(ctx context.Context, d any) bool {
	h, _ := ctx.Value(outerDialKey{}).(*outerDial)
	for ; h != nil; h = h.outer {
		if h.dialer == d {
			return true
		}
	}
	return false
}
