package dialer

import (
	"context"
	"crypto/tls"
	"time"
)

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
type span struct {
	trace *Trace
	event Event
}

func (t *Trace) start(phase Phase, proxy, addr string) *span {
	if t == nil {
		return nil
	}
	s := &span{t, Event{Phase: phase, Proxy: proxy, Addr: addr, Began: time.Now()}}
	if t.Start != nil {
		t.Start(s.event)
	}
	return s
}

func (s *span) done(err error) {
	if s == nil || s.trace.Done == nil {
		return
	}
	s.event.Duration = time.Since(s.event.Began)
	s.event.Err = err
	s.trace.Done(s.event)
}
