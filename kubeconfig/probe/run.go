package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// probing is one Probe.
type probing struct {
	report Report
	server *url.URL
	user   userFacts
	way    dialWay
	creds  *transport.Config
	tls    *tls.Config // the API server's; nil without TLS
	dial   route.DialFunc

	forward dialer.Dialer // to the proxy; nil without one

	transport *http.Transport // of the requests; nil: one that dials by dial

	pluginErr error // why the exec plugin gave no credentials
	pluginRan time.Duration

	received atomic.Bool // errReceived was an error of a Read; net/http may have one of its own

	mu    sync.Mutex // guards the fields below
	open  []net.Conn // all that were made
	ready net.Conn   // the one that the first request goes over
	done  bool
}

func newProbing(r *route.Route, credentials *route.Credentials, dial route.DialFunc) *probing {
	p := &probing{creds: credentials.Config, server: r.Server.URL, dial: dial, forward: r.Forward}
	p.report.Server, p.report.Route = printable.Text(r.Settings.Current.ServerURL(), maxText), "direct"
	if r.Proxy != nil {
		p.report.Route = field.WithoutUser(r.Proxy.String())
	}
	p.way = dialWay{target: route.AddressOf(p.server), proxied: r.Proxy != nil, noLogin: r.Proxy != nil && !r.HasLogin()}
	p.user = userOf(r.Settings.Current.User, p.creds)
	if p.server.Scheme == "https" {
		p.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		if credentials.TLS != nil {
			p.tls = credentials.TLS.Clone()
		}
		p.tls.ServerName = cmp.Or(p.tls.ServerName, r.Server.Host())
		p.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	return p
}

func (p *probing) add(s Step) bool {
	s.Detail, s.Cause, s.Advice = printable.Text(s.Detail, maxText), printable.Text(s.Cause, maxText), printable.Text(s.Advice, maxText)
	p.report.Steps = append(p.report.Steps, s)
	return s.Err == nil
}

// fail adds a step that failed.
func (p *probing) fail(phase Phase, took time.Duration, f finding, err error) bool {
	return p.add(Step{Phase: phase, Took: took, Cause: f.cause, Advice: f.advice, Err: err})
}

// checkConfig looks at what shows without a connection.
func (p *probing) checkConfig() bool {
	began := time.Now()
	if p.user.broken {
		return p.fail(PhaseConfig, time.Since(began), finding{errBrokenToken.Error(), "Write the token into the kubeconfig (or its tokenFile) as one line."}, errBrokenToken)
	}
	return p.add(Step{Phase: PhaseConfig, Took: time.Since(began), Detail: p.user.String()})
}

// checkPlugin runs an exec plugin before anything waits for its certificate, which
// may take a person at a browser. client-go keeps what it gave. That it failed
// is the matter of PhaseAuth: what comes before is tried without it.
func (p *probing) checkPlugin(ctx context.Context) bool {
	if !p.user.exec || p.tls == nil || p.tls.GetClientCertificate == nil {
		return true
	}
	began, ask := time.Now(), p.tls.GetClientCertificate
	_, p.pluginErr = await(ctx, func() (*tls.Certificate, error) { return ask(&tls.CertificateRequestInfo{}) })
	p.pluginRan = time.Since(began)
	switch {
	case p.pluginErr != nil && ctx.Err() != nil:
		return p.fail(PhaseAuth, p.pluginRan, p.user.pluginHangs(), ctx.Err())
	case p.pluginErr != nil:
		p.tls.GetClientCertificate = nil
	}
	return true
}

// checkConnection makes the connection.
func (p *probing) checkConnection(ctx context.Context) bool {
	r := &recorder{began: time.Now(), steps: slices.Clone(p.report.Steps)}
	conn, err := p.dialAndAsk(ctx, r)
	if err != nil {
		phase, f := dialFinding(err, p.way)
		steps, took := r.failedSteps(phase)
		p.report.Steps = steps
		return p.add(Step{Phase: phase, Took: took, Cause: f.cause, Advice: f.advice, Err: err, Tunnel: phase == PhaseConnect && isOfTunnel(err)})
	}
	conn = p.boundConn(conn)
	steps, proxied := r.passedSteps(conn)
	p.report.Steps = steps
	if !proxied {
		p.report.Route = "direct" // by a no_proxy list, maybe
	}
	return p.startTLS(ctx, conn)
}

// startTLS shakes hands with the API server.
func (p *probing) startTLS(ctx context.Context, conn net.Conn) bool {
	if p.tls == nil {
		p.ready = conn
		return true
	}
	began := time.Now()
	tc := tls.Client(conn, p.tls)
	if err := tc.HandshakeContext(ctx); err != nil {
		err = ended.Error(ctx, err)
		return p.fail(PhaseTLS, time.Since(began), p.tlsFinding(err), err)
	}
	p.ready = tc
	return p.add(Step{Phase: PhaseTLS, Took: time.Since(began), Detail: handshakeDetail(tc.ConnectionState(), p.tls.InsecureSkipVerify)})
}

// connect is the dial function of the requests: the connection that the Probe
// has made, and further ones if the API server closes it.
func (p *probing) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	p.mu.Lock()
	conn := p.ready
	p.ready = nil
	p.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	conn, err := p.dial(ctx, "tcp", route.AddressOf(p.server))
	if err != nil {
		return nil, err
	}
	conn = p.boundConn(conn)
	if p.tls == nil {
		return conn, nil
	}
	tc := tls.Client(conn, p.tls)
	return tc, tc.HandshakeContext(ctx)
}

// boundConn closes conn when the probe ends, and returns one that reads maxReceived at most; one
// after maxConns reads nothing.
func (p *probing) boundConn(conn net.Conn) net.Conn {
	p.mu.Lock()
	p.open = append(p.open, conn)
	done, left := p.done, maxReceived
	if len(p.open) > maxConns {
		left = 0
	}
	p.mu.Unlock()
	if done {
		abort.Close(conn)
	}
	return &boundedConn{conn, left, &p.received}
}

// boundedConn is a connection whose other end is a stranger: it may send frames without end
// that are no part of an answer, or a GOAWAY each time, after which net/http connects anew.
type boundedConn struct {
	net.Conn
	left  int // bytes
	ended *atomic.Bool
}

var errReceived = fmt.Errorf("the other end has sent more than %d KiB, or has ended %d connections", maxReceived>>10, maxConns)

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.ended.Store(true)
		return 0, errReceived
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func (p *probing) close() {
	p.mu.Lock()
	p.done = true
	open := p.open
	p.mu.Unlock()
	for _, conn := range open {
		abort.Close(conn)
	}
}

// unusableReport is the Report of a kubeconfig that no route can be made of.
func unusableReport(config *clientcmdapi.Config, took time.Duration, err error) Report {
	var r Report
	if e, entriesErr := entry.FollowContext(config); entriesErr == nil {
		r.Server, r.Route = printable.Text(e.ServerURL(), maxText), "direct"
		if e.Cluster.ProxyURL != "" {
			r.Route = printable.Text(field.WithoutUser(e.Cluster.ProxyURL), maxText)
		}
	}
	f := configFinding(err)
	r.Steps = []Step{{Phase: PhaseConfig, Took: took, Cause: printable.Text(f.cause, maxText), Advice: printable.Text(f.advice, maxText), Err: err}}
	return r
}

func configFinding(err error) finding {
	var (
		invalid *field.Error
		path    *fs.PathError
	)
	switch {
	case errors.As(err, &path):
		return finding{"the kubeconfig names a file that can't be read: " + path.Error(),
			"Bring the file along, or put its contents into the kubeconfig where it works: kubectl config view --raw --flatten."}
	case errors.As(err, &invalid) && invalid.Field == "current-context":
		return finding{"current-context: " + invalid.Err.Error(), "Name one that there is: kubectl config get-contexts lists them, kubectl config use-context sets one."}
	case errors.As(err, &invalid) && invalid.Field == "Options.ReadSecret":
		return finding{"the kubeconfig's certificates for the proxy are in a Secret, which is not read here: " + invalid.Err.Error(),
			"Set certificateAuthority, clientCertificate and clientKey in proxyTLS in place of secret, or look where the Secret can be read."}
	case errors.As(err, &invalid):
		return finding{invalid.Field + ": " + invalid.Err.Error(), "Correct " + invalid.Field + " in the kubeconfig."}
	}
	return finding{strings.TrimPrefix(err.Error(), "kubeconfig: "), "Correct the kubeconfig."}
}
