package kubeconfig

import (
	"context"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Phase is a step of the way to an API server.
type Phase string

// The phases of a Report, in their order. A route without a proxy has none of
// the proxy's, a proxy that is named by an address no dns.
const (
	PhaseConfig    Phase = "config"     // the kubeconfig itself
	PhaseDNS       Phase = "dns"        // the name that this side resolves: the proxy's, or the API server's
	PhaseTCP       Phase = "tcp"        // to the proxy, or to the API server
	PhaseProxyTLS  Phase = "proxy tls"  // with an https proxy
	PhaseProxyAuth Phase = "proxy auth" // the proxy's word on our credentials; only where it is one of its own
	PhaseConnect   Phase = "connect"    // the proxy's connection to the API server
	PhaseTLS       Phase = "tls"        // with the API server
	PhaseAuth      Phase = "auth"       // the API server's word on our credentials
	PhaseReady     Phase = "readyz"     // the API server's word on itself
)

var phaseOrder = [...]Phase{
	PhaseConfig, PhaseDNS, PhaseTCP, PhaseProxyTLS, PhaseProxyAuth, PhaseConnect, PhaseTLS, PhaseAuth, PhaseReady,
}

// before reports whether p comes before other.
func (p Phase) before(other Phase) bool {
	for _, phase := range phaseOrder {
		if phase == other {
			return false
		}
		if phase == p {
			return true
		}
	}
	return false
}

// Report says how far the way to an API server leads, and what stops it. It
// holds no secret, and is JSON as it is.
type Report struct {
	Server  string `json:"server"`            // the API server's URL; empty if the kubeconfig has none that can be used
	Route   string `json:"route"`             // "direct", "http://proxy:3128": without user info
	Version string `json:"version,omitempty"` // of the API server, if it told
	Steps   []Step `json:"steps"`
}

// Step is one phase that was tried. The last one of a Report that is not OK
// is the one that failed.
type Step struct {
	Phase  Phase         `json:"phase"`
	Took   time.Duration `json:"took"`             // nanoseconds in JSON
	Detail string        `json:"detail,omitempty"` // what was found: an address, a certificate's name
	Cause  string        `json:"cause,omitempty"`  // why it failed; empty if it did not
	Advice string        `json:"advice,omitempty"` // what to do
	Err    error         `json:"-"`                // nil if it did not fail
}

// OK says whether every phase passed.
func (r Report) OK() bool { return len(r.Steps) > 0 && r.Failed() == nil }

// Failed returns the step that failed, nil if none did.
func (r Report) Failed() *Step {
	if n := len(r.Steps); n > 0 && r.Steps[n-1].Err != nil {
		return &r.Steps[n-1]
	}
	return nil
}

// Err returns a [*ProbeError] for the step that failed, nil if none did.
func (r Report) Err() error {
	s := r.Failed()
	if s == nil {
		return nil
	}
	return &ProbeError{Phase: s.Phase, Cause: s.Cause, Advice: s.Advice, Err: s.Err}
}

// ProbeError is the failure of a [Report].
type ProbeError struct {
	Phase  Phase
	Cause  string
	Advice string
	// Err is what the phase failed with.
	Err error
}

// Error is the phase and the cause, without the advice.
func (e *ProbeError) Error() string { return "kubeconfig: probe: " + string(e.Phase) + ": " + e.Cause }

// Unwrap returns Err.
func (e *ProbeError) Unwrap() error { return e.Err }

// probeTimeout bounds a Probe whose context has no deadline.
const probeTimeout = 15 * time.Second

// Probe goes the whole way to the API server of config's current context, as a
// [Client] of [NewClient] does, with a connection of its own, and says how far
// it got. At the end it asks who we are, whether the API server is ready, and
// for its version; it changes nothing.
//
// ctx bounds it; without a deadline it takes 15 seconds at the most. The phase
// that it hangs in is then the one that failed. An exec plugin that hangs goes
// on in the background: client-go has no way to stop one.
//
// For options that a kubeconfig can't say, see [Client.Probe].
func Probe(ctx context.Context, config *clientcmdapi.Config) Report {
	began := time.Now()
	c, err := NewClient(config, nil)
	if err != nil {
		return unusable(config, time.Since(began), err)
	}
	defer c.Close()
	return c.Probe(ctx)
}

// Probe is [Probe] by the Client's route and options. The Client's other
// connections are left alone. After Close it fails with net.ErrClosed.
func (c *Client) Probe(ctx context.Context) Report {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, probeTimeout)
		defer cancel()
	}
	g := c.enter()
	if g == nil {
		g = c.generation() // which dials no more
	} else {
		defer g.leave()
	}
	p := newProbing(g)
	defer p.close()
	p.run(ctx)
	return p.report
}
