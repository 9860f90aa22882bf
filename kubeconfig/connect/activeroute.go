package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// maxHeader bounds the header of an answer; net/http would take 10 MiB. kube-apiserver's own has
// some 10 KiB, but it also passes on the answers of pods and of aggregated API servers.
const maxHeader = 1 << 20

// activeRoute is what a Client makes of one kubeconfig: a route, and a transport
// with its connections.
type activeRoute struct {
	*route.Route
	rt          http.RoundTripper // authenticates
	base        *http.Transport   // below it
	credentials *route.Credentials
	conns       *connections // the transport's

	mu       sync.Mutex    // guards the fields below
	running  int           // requests
	replaced bool          // by another route
	idle     chan struct{} // closed when replaced, and running is 0
}

// newActiveRoute dials nothing. The transport is its own: client-go's cache
// accepts no Config with a Proxy function. Connections made without the transport use
// the credentials.
func newActiveRoute(s *route.Settings, opts *route.Options) (*activeRoute, error) {
	r, err := opts.New(s)
	if err != nil {
		return nil, err
	}
	g := &activeRoute{Route: r, conns: newConnections(), idle: make(chan struct{})}
	config, credentials, err := g.Credentials(g.conns.dialFunc)
	if err != nil {
		return nil, err
	}
	g.credentials = credentials
	// Not nil: the environment would be asked.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	config.WrapTransport = transport.Wrappers(func(base http.RoundTripper) http.RoundTripper {
		g.base, _ = base.(*http.Transport) // below what plugins wrap it in
		return base
	}, config.WrapTransport)
	if g.rt, err = transport.New(config); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if g.base == nil {
		return nil, errors.New("connect: client-go's transport is not an http.Transport") // not reached: see its cache
	}
	g.base.MaxResponseHeaderBytes = maxHeader
	r.Install(g.base)
	return g, nil
}

// beginRequest reports whether a request may begin. endRequest ends it.
func (g *activeRoute) beginRequest() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.replaced {
		return false
	}
	g.running++
	return true
}

func (g *activeRoute) endRequest() {
	g.mu.Lock()
	g.running--
	replaced := g.replaced
	if replaced && g.running == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	if replaced {
		g.base.CloseIdleConnections()
	}
}

// refuseRequests lets no more requests in, and closes a route without requests.
func (g *activeRoute) refuseRequests() {
	g.mu.Lock()
	g.replaced = true
	if g.running == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	g.base.CloseIdleConnections()
}

// closeAfterLinger waits for the requests of a replaced route and closes it: when
// the last one has ended, after limit, or when ctx ends.
func (g *activeRoute) closeAfterLinger(ctx context.Context, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-g.idle:
	case <-t.C:
	case <-ctx.Done():
		g.close(errClosed)
	}
	g.close(errReplaced)
}

// close cuts what is left.
func (g *activeRoute) close(cause error) {
	g.conns.close(cause)
	g.base.CloseIdleConnections()
}

// clientTransport is the transport in everything that a Client returns. It uses the
// newest route. After Close, its errors say that the Client is closed.
type clientTransport struct{ client *Client }

var _ http.RoundTripper = (*clientTransport)(nil)

// RoundTrip sends req to the API server where it is now.
func (t *clientTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Response != nil && !route.ServesURL(*t.client.known.Load(), req.URL) {
		return refusal{fmt.Errorf("connect: the API server redirects to %s: not followed, for the credentials would go there", printable.Text(req.URL.Scheme+"://"+req.URL.Host, printable.Most))}.RoundTrip(req)
	}
	g := t.client.enterRoute()
	if g == nil {
		return refusal{errClosed}.RoundTrip(req)
	}
	resp, err := g.rt.RoundTrip(t.client.readdressRequest(req, g))
	if err != nil {
		err = g.conns.explainError(err) // before endRequest, which may close them
		g.endRequest()
		return nil, err
	}
	if err := route.CheckSwitched(req, resp); err != nil {
		g.endRequest()
		return nil, fmt.Errorf("connect: %w", err)
	}
	b := &responseBody{ReadCloser: resp.Body, route: g}
	switch upgraded, ok := resp.Body.(io.ReadWriteCloser); {
	case resp.Body == http.NoBody:
		g.endRequest()
	case ok && resp.StatusCode == http.StatusSwitchingProtocols:
		resp.Body = &duplexBody{body: b, Writer: upgraded}
	default:
		resp.Body = b
	}
	return resp, nil
}

// CloseIdleConnections is called by http.Client.
func (t *clientTransport) CloseIdleConnections() { t.client.currentRoute().base.CloseIdleConnections() }

// WrappedRoundTripper lets client-go and apimachinery find the present
// http.Transport.
func (t *clientTransport) WrappedRoundTripper() http.RoundTripper { return t.client.currentRoute().rt }

var _ utilnet.RoundTripperWrapper = (*clientTransport)(nil)

// responseBody is the body of an answer. The request ends with it.
type responseBody struct {
	io.ReadCloser
	route *activeRoute
	left  sync.Once
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if err != io.EOF {
			err = b.route.conns.explainError(err)
		}
		b.left.Do(b.route.endRequest)
	}
	return n, err
}

func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.left.Do(b.route.endRequest)
	return err
}

// duplexBody is the body of a connection that was upgraded: it is also written to,
// and is in use until it is closed.
type duplexBody struct {
	body *responseBody
	io.Writer
}

func (d *duplexBody) Read(p []byte) (int, error) {
	n, err := d.body.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = d.body.route.conns.explainError(err)
	}
	return n, err
}

func (d *duplexBody) Close() error { return d.body.Close() }
