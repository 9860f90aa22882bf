// Package probe goes the way of a kubeconfig to its API server, phase by phase,
// and names the phase that fails, the cause, and what a person does about it:
//
//	if err := probe.Run(ctx, config).Err(); err != nil {
//		log.Print(err) // probe: proxy auth: the proxy answered 407: ...
//	}
//
// A Report holds no secret.
package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// Phase is a step of the way to an API server.
type Phase string

// The phases of a Report, in their order. A route without a proxy skips the
// proxy's phases; a proxy with an IP address skips dns.
const (
	PhaseConfig    Phase = "config"     // the kubeconfig itself
	PhaseDNS       Phase = "dns"        // the name that this side resolves: the proxy's, or the API server's
	PhaseTCP       Phase = "tcp"        // to the proxy, or to the API server
	PhaseProxyTLS  Phase = "proxy tls"  // with an https proxy
	PhaseProxyAuth Phase = "proxy auth" // the proxy's word on our credentials; only where it is one of its own
	PhaseConnect   Phase = "connect"    // the proxy's connection to the API server
	PhaseTLS       Phase = "tls"        // with the API server
	PhaseAuth      Phase = "auth"       // that it is an API server, and its word on our credentials
	PhaseReady     Phase = "readyz"     // the API server's word on itself
)

var phaseOrder = [...]Phase{
	PhaseConfig, PhaseDNS, PhaseTCP, PhaseProxyTLS, PhaseProxyAuth, PhaseConnect, PhaseTLS, PhaseAuth, PhaseReady,
}

// order is the place of p among the phases.
func (p Phase) order() int { return slices.Index(phaseOrder[:], p) }

// before reports whether p comes before other.
func (p Phase) before(other Phase) bool { return p.order() < other.order() }

// Report says which phases to an API server succeed, and which one fails. It
// holds no secret, and is JSON as it is.
type Report struct {
	Server  string `json:"server"`            // the API server's URL; empty if the kubeconfig has no usable one
	Route   string `json:"route"`             // "direct", "http://proxy:3128": without user info
	Version string `json:"version,omitempty"` // the API server's, if it told
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
	Tunnel bool          `json:"tunnel,omitempty"` // in PhaseConnect: the tunnel behind its gateway failed, or forbids it
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

// Err returns a [*Error] for the step that failed, nil if none did.
func (r Report) Err() error {
	s := r.Failed()
	if s == nil {
		return nil
	}
	return &Error{Phase: s.Phase, Cause: s.Cause, Advice: s.Advice, Err: s.Err}
}

// Error is the failure of a [Report].
type Error struct {
	Phase  Phase
	Cause  string
	Advice string
	// Err is what the phase failed with.
	Err error
}

// Error is the phase and the cause, without the advice.
func (e *Error) Error() string { return "probe: " + string(e.Phase) + ": " + e.Cause }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// defaultTimeout bounds a Run whose context has no deadline.
const defaultTimeout = 15 * time.Second

// Run goes the whole way to the API server of config's current context, as a
// client of package connect does, and says how far it got. At the end it asks
// for our user name, whether the API server is ready, and for its version; it changes
// nothing.
//
// ctx bounds it; without a deadline it takes 15 seconds at the most. The phase
// that it hangs in is then the one that failed. An exec plugin that hangs goes
// on in the background: client-go has no way to stop one.
//
// For options that a kubeconfig can't say, see the method Probe of
// connect.Client.
func Run(ctx context.Context, config *clientcmdapi.Config) Report {
	return Options{}.Run(ctx, config)
}

// Options say how to probe. The zero value is that of [Run].
type Options struct {
	// Plain goes the way of a client-go that knows nothing of this library, as kubectl,
	// Cluster API and Flux do. Our extension of the kubeconfig is not read: neither its
	// endpoints nor what it says of the proxy count. An https proxy is verified as the
	// API server is, by the kubeconfig's CA and tls-server-name. Without a proxy-url,
	// HTTPS_PROXY and NO_PROXY of this process count.
	Plain bool
	// ReadSecret returns the data of the Secret that the extension names for an https
	// proxy, see connect.Options.ReadSecret. If nil, such a kubeconfig fails in
	// PhaseConfig, unless Plain is set.
	ReadSecret func(ctx context.Context, namespace, name string) (map[string][]byte, error)
}

// Run is the function [Run], with options.
func (o Options) Run(ctx context.Context, config *clientcmdapi.Config) Report {
	if o.Plain {
		return runPlain(ctx, config)
	}
	began := time.Now()
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	r, credentials, err := newRoute(ctx, &route.Options{ReadSecret: o.ReadSecret}, config)
	if err != nil {
		return unusableReport(config, time.Since(began), err)
	}
	return RunRoute(ctx, r, credentials, r.Dialer.DialContext)
}

// newRoute returns when ctx ends, though a file that the kubeconfig names may be a pipe that
// nobody writes to: reading it goes on in the background.
func newRoute(ctx context.Context, opts *route.Options, config *clientcmdapi.Config) (*route.Route, *route.Credentials, error) {
	if current, err := entry.FollowContext(config); err != nil || len(route.NamedFiles(current)) == 0 {
		return makeRoute(opts, config)
	}
	var credentials *route.Credentials
	r, err := await(ctx, func() (r *route.Route, err error) {
		r, credentials, err = makeRoute(opts, config)
		return r, err
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		return nil, nil, fmt.Errorf("kubeconfig: a file that it names does not end: %w", err)
	}
	return r, credentials, err
}

// await returns what f returns, or the error of ctx if that ends first: f goes on in the background.
func await[T any](ctx context.Context, f func() (T, error)) (value T, err error) {
	type result struct {
		value T
		err   error
	}
	ended := make(chan result, 1)
	go func() {
		value, err := f()
		ended <- result{value, err}
	}()
	select {
	case r := <-ended:
		return r.value, r.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

func makeRoute(opts *route.Options, config *clientcmdapi.Config) (*route.Route, *route.Credentials, error) {
	settings, err := opts.ReadSettings(config)
	if err != nil {
		return nil, nil, err
	}
	r, err := opts.New(settings)
	if err != nil {
		return nil, nil, err
	}
	_, credentials, err := r.Credentials(func(d dialer.Dialer) route.DialFunc { return d.DialContext })
	return r, credentials, err
}

// RunRoute is Run for package connect, whose clients have a route.
func RunRoute(ctx context.Context, r *route.Route, credentials *route.Credentials, dial route.DialFunc) Report {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	p := newProbing(r, credentials, dial)
	defer p.close()
	_ = p.checkConfig() && p.checkPlugin(ctx) && p.checkConnection(ctx) && p.queryAPI(ctx) // as long as none fails
	return p.report
}

// withDeadline returns ctx with a deadline.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, defaultTimeout)
}
