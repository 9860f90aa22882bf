package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/causewayproject/causeway/kubeconfig/internal/route"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// Client is a way to one API server. It has one transport, shared by everything that
// is made from the Client, and that transport's connections. An answer's header has at most
// 1 MiB. It is safe for concurrent use.
//
// # Changes
//
// A Client of a [Cache] follows its Secret. Another kubeconfig there brings
// another transport and another route. All new requests take them from then on, those of older clientsets,
// too: a rest.Config need not be asked for again. A request for the
// address that the API server had before is sent to the one that it has now, its
// Host with it, verified by the name that belongs to that. Idle connections of
// before are closed at once; requests and watches may go on for 30 seconds and are
// then cut with a reset, after which client-go repeats a GET, and its informers
// resume. Exec and port-forward, which nobody would resume, go on until they
// end; new ones take the new route and address, and the credentials of the moment when
// their executor or dialer was made.
//
// The Client compares the current context's cluster and user, and the files that they
// name. A kubeconfig that differs only in other parts changes nothing.
//
// # Exec, attach and port-forward
//
// client-go makes connections of its own for them, for which a rest.Config's
// transport and dial function are not used. They take a proxy, though, and so
// [Client.Config] names one: a bridge on loopback, started when it is first
// asked for, with a random password. It connects only to the API server, by the
// Client's route. TLS goes through it end to end. So
// remotecommand's executors, portforward with its dialers (SPDY, WebSocket, and
// one with the other to fall back to), Cluster API's etcd dialer and whatever
// else is made of a rest.Config take the route unchanged.
type Client struct {
	opts      Options
	transport *clientTransport // the transport
	newest    atomic.Pointer[activeRoute]
	known     atomic.Pointer[[]route.Server] // where the API server is, and has been
	bridge    *bridge
	linger    time.Duration // how long requests of a replaced kubeconfig may go on

	mu     sync.Mutex // guards closed, and changes of newest and known
	closed bool
	once   sync.Once // Close
}

// New returns a Client for the current context of config, which is only
// read. Nothing is dialed yet. The caller closes the Client.
//
// The route is config's proxy-url, with what the extension of its cluster says
// ([kubeconfig.ExtensionName], which [kubeconfig.Spec.Build] writes), and nothing else: no variable of the
// environment (HTTPS_PROXY, NO_PROXY, KUBECONFIG, KUBERNETES_*) and no file
// in the home directory has a say. As in client-go, the proxy resolves the
// API server's name, for socks5 too; socks5h, which client-go refuses, is
// accepted and means the same.
//
// Of the extension are honoured, where opts does not replace them: noProxy, by
// which an API server on the list is reached directly (localhost and loopback
// only if they are on it); header and proxyTLS, of which a relative file name is
// taken from the kubeconfig's directory; and endpoints. An extension that can't
// be honoured whole is an error: one of a newer version, or one that speaks of a
// proxy beside no proxy-url.
//
// Endpoints are tried in their order after server, for each connection, until
// one has finished the TLS handshake; one that is silent for two seconds gets
// the next one beside it, and one that failed is tried last for 30 seconds. All
// are verified for the same name: tls-server-name, or the host of server, which
// the certificate of each has to carry.
//
// Every kind of user works: certificates, tokens, basic authentication, exec
// and auth provider plugins, impersonation. Files of certificates and keys are
// read once, now, and again with another kubeconfig; a token file is read again as it changes. Tokens that an
// auth provider renews are kept in memory and not written anywhere.
//
// Errors of the kubeconfig's fields and of opts are [*kubeconfig.FieldError] and hold no
// secret.
func New(config *clientcmdapi.Config, opts *Options) (*Client, error) {
	c := &Client{linger: 30 * time.Second}
	c.transport = &clientTransport{c}
	if opts != nil {
		c.opts = *opts
	}
	settings, err := c.opts.routeOptions().ReadSettings(config)
	if err != nil {
		return nil, err
	}
	g, err := newActiveRoute(settings, c.opts.routeOptions())
	if err != nil {
		return nil, err
	}
	c.newest.Store(g)
	c.known.Store(&[]route.Server{g.Server})
	c.bridge = newBridge(c)
	return c, nil
}

// Config returns a new rest.Config for the API server. Clients made from it
// (clientsets, dynamic clients, controller-runtime's) share the Client's one
// transport and stop working when the Client is closed.
//
// The caller may change what is not about the connection: QPS, Burst,
// UserAgent, content types, Timeout, Impersonate; and wrap the transport, by
// the method Wrap. Credentials and TLS are in the transport: the rest.Config
// holds none, and client-go refuses TLS fields along with a transport.
// Exec, attach and port-forward use TLSClientConfig.ServerName, Proxy and WrapTransport:
// without these they find no credentials and no CA, and fail.
//
// Host is where the API server is now; what is made of the rest.Config follows
// it all the same.
func (c *Client) Config() *rest.Config {
	g := c.currentRoute()
	return &rest.Config{
		Host: g.Server.Text, Transport: c.transport,
		TLSClientConfig: rest.TLSClientConfig{ServerName: g.ServerName},
		Proxy:           c.bridge.proxy, WrapTransport: c.transportWrapper(g.ServerName),
	}
}

// Close closes every connection of the Client, idle or in use. Requests that
// are under way, reads of their answers, watches, and every request from then
// on fail with an error that is net.ErrClosed. The goroutines of the
// connections end with them. Connections over the bridge are cut, too, and Close
// waits for the bridge's goroutines. It may be called more than once and returns nil.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.bridge.conns.close(errClosed)
		c.currentRoute().close(errClosed)
		c.bridge.close()
	})
	return nil
}

// Probe is [probe.Run] by the Client's route and options. It does not touch the
// Client's other connections. After Close it fails with net.ErrClosed.
func (c *Client) Probe(ctx context.Context) probe.Report {
	g := c.enterRoute()
	if g == nil {
		g = c.currentRoute() // which dials no more
	} else {
		defer g.endRequest()
	}
	return probe.RunRoute(ctx, g.Route, g.credentials, g.conns.dialFunc(g.Dialer))
}

var errNoServerName = errors.New("connect: exec, attach and port-forward need the TLSClientConfig.ServerName of Client.Config")

// transportWrapper returns the WrapTransport of a rest.Config handed out for this server
// name, for what connects without the transport. client-go's executors and
// port-forwarders read TLS and credentials from a rest.Config, and a rest.Config
// with a transport may hold none; but they let its WrapTransport wrap what they
// connect with.
// It gives a round tripper that has a TLS configuration of its own, made
// for one rest.Config, the API server's as it is then; the transport, which has
// it all, it leaves as it is.
func (c *Client) transportWrapper(serverName string) transport.WrapperFunc {
	return func(rt http.RoundTripper) http.RoundTripper {
		holder, ok := rt.(utilnet.TLSClientConfigHolder)
		if !ok {
			return rt
		}
		own := holder.TLSClientConfig()
		if own == nil {
			return refusal{errNoServerName}
		}
		g := c.currentRoute()
		if own.ServerName == serverName {
			own.ServerName = g.ServerName
		}
		wrapped, err := wrapTransport(g.credentials, own, rt)
		if err != nil {
			return refusal{err}
		}
		return readdressing{c, wrapped}
	}
}

// wrapTransport gives own what the API server's TLS needs, and rt the credentials.
func wrapTransport(c *route.Credentials, own *tls.Config, rt http.RoundTripper) (http.RoundTripper, error) {
	if c.TLS != nil {
		own.MinVersion = c.TLS.MinVersion
		own.InsecureSkipVerify = c.TLS.InsecureSkipVerify
		own.RootCAs = c.TLS.RootCAs
		own.Certificates = c.TLS.Certificates
		own.GetClientCertificate = c.TLS.GetClientCertificate
	}
	return transport.HTTPWrappersForConfig(c.Config, rt)
}

// readdressing sends requests to the API server where it is now.
type readdressing struct {
	client *Client
	rt     http.RoundTripper
}

func (r readdressing) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.rt.RoundTrip(r.client.readdressRequest(req, r.client.currentRoute()))
}

// refusal is a round tripper that has only an error.
type refusal struct{ err error }

func (r refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, r.err
}

// currentRoute is the newest one.
func (c *Client) currentRoute() *activeRoute { return c.newest.Load() }

// enterRoute returns the newest route, in which a request begins; nil once the
// Client is closed.
func (c *Client) enterRoute() *activeRoute {
	for {
		if c.bridge.conns.isClosed() {
			return nil
		}
		if g := c.currentRoute(); g.beginRequest() {
			return g
		}
	}
}

// readdressRequest returns req, or what it has to be for the server of g.
func (c *Client) readdressRequest(req *http.Request, g *activeRoute) *http.Request {
	known := c.known.Load()
	if len(*known) == 1 {
		return req
	}
	return route.Forward(req, g.Server, *known)
}

// isKnownAddress reports whether the API server is at address, or has been.
func (c *Client) isKnownAddress(address string) bool {
	return slices.ContainsFunc(*c.known.Load(), func(s route.Server) bool { return route.EqualAddress(s.Address, address) })
}

// useConfig makes config the kubeconfig of all that was ever made of the Client.
func (c *Client) useConfig(config *clientcmdapi.Config) error {
	s, err := c.opts.routeOptions().ReadSettings(config)
	if err != nil || s.Equal(c.currentRoute().Settings) {
		return err
	}
	g, err := newActiveRoute(s, c.opts.routeOptions())
	if err == nil {
		c.installRoute(g)
	}
	return err
}

// installRoute makes g the newest route, unless the Client is closed.
func (c *Client) installRoute(g *activeRoute) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		g.close(errClosed)
		return
	}
	old := c.currentRoute()
	known := route.WithServer(*c.known.Load(), g.Server)
	c.known.Store(&known)
	c.newest.Store(g)
	c.mu.Unlock()
	old.refuseRequests()
	if !c.bridge.group.Go(func() { old.closeAfterLinger(c.bridge.conns.closed, c.linger) }) {
		old.close(errClosed)
	}
}
