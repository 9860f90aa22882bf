package probe

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/dialer"
)

// recorder makes steps of what a dial traces. Hops and attempts of the same
// phase are one step.
type recorder struct {
	began time.Time

	mu      sync.Mutex // guards the fields below
	steps   []Step
	proxied bool
	reached string // the proxy, as scheme://host:port, that was last asked for something
	ended   bool   // hooks may be called after the dial
}

func (r *recorder) trace(ctx context.Context) context.Context {
	return dialer.WithTrace(ctx, &dialer.Trace{Start: r.begin, Done: r.event})
}

var dialPhases = map[dialer.Phase]Phase{
	dialer.PhaseConfig:  PhaseConfig,
	dialer.PhaseDNS:     PhaseDNS,
	dialer.PhaseTCP:     PhaseTCP,
	dialer.PhaseTLS:     PhaseProxyTLS,
	dialer.PhaseAuth:    PhaseProxyAuth,
	dialer.PhaseConnect: PhaseConnect,
}

func (r *recorder) event(e dialer.Event) {
	phase := dialPhases[e.Phase]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.proxied = r.proxied || e.Proxy != ""
	i := slices.IndexFunc(r.steps, func(s Step) bool { return s.Phase == phase })
	if i < 0 {
		i = len(r.steps)
		r.steps = append(r.steps, Step{Phase: phase})
	}
	r.steps[i].Took += e.Duration
	r.steps[i].Detail = eventDetail(e)
}

// begin notes the proxy that is asked.
func (r *recorder) begin(e dialer.Event) {
	if e.Phase != dialer.PhaseConnect {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached = e.Proxy
}

func (r *recorder) reachedProxy() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reached
}

// eventDetail is what a phase found.
func eventDetail(e dialer.Event) string {
	switch {
	case e.Phase == dialer.PhaseDNS:
		host, _, _ := net.SplitHostPort(e.Addr)
		return host
	case e.TLS != nil:
		return handshakeDetail(*e.TLS, false)
	case e.Phase == dialer.PhaseConnect || e.Phase == dialer.PhaseTCP:
		if hop := nextHop(e.ProxyStatus); hop != "" {
			return e.Addr + " by " + hop
		}
		return e.Addr
	}
	return ""
}

// passedSteps returns the steps of a dial that has made conn, and whether a proxy
// took part in it.
func (r *recorder) passedSteps(conn net.Conn) (steps []Step, proxied bool) {
	steps = r.finish()
	if n := len(steps); n == 0 || !PhaseConfig.before(steps[n-1].Phase) { // by a dialer that does not trace
		steps = append(steps, Step{Phase: PhaseTCP, Took: time.Since(r.began)})
	}
	for i, s := range steps {
		if s.Phase != PhaseTCP {
			continue
		}
		switch a := conn.RemoteAddr(); {
		case a == nil || a.String() == s.Detail:
		case s.Detail == "":
			steps[i].Detail = a.String()
		default:
			steps[i].Detail = fmt.Sprintf("%s at %s", s.Detail, a)
		}
	}
	return steps, r.proxied
}

// failedSteps returns the steps that passed before phase failed, and how long phase
// took.
func (r *recorder) failedSteps(phase Phase) (steps []Step, took time.Duration) {
	took = -1
	var before time.Duration
	for _, s := range r.finish() {
		switch {
		case s.Phase == phase:
			took = s.Took
		case s.Phase.before(phase):
			steps = append(steps, s)
			before += s.Took
		}
	}
	// Of a phase that never ended, or that another stands for: a proxy refuses
	// credentials when it is asked to connect.
	if took < 0 {
		took = max(0, time.Since(r.began)-before)
	}
	return steps, took
}

func (r *recorder) finish() []Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	slices.SortStableFunc(r.steps, func(a, b Step) int { return a.Phase.order() - b.Phase.order() })
	return r.steps
}
