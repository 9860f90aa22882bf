package kubeconfig

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
)

// ClientOptions is what a kubeconfig can't say. A nil *ClientOptions is the
// zero value.
type ClientOptions struct {
	// ProxyTLS is the TLS configuration of the connection to an https proxy:
	// its CA, a client certificate for the proxy. If nil, the system's roots
	// and the proxy's host. The settings of the API server are never used for
	// the proxy. It is copied.
	ProxyTLS *tls.Config
	// Dialer replaces the kubeconfig's route: it is asked for the API server's
	// address, and proxy-url is not read. This is where tunnels come in, and
	// [dialer.FromEnvironment]. If nil, the route is the kubeconfig's.
	Dialer dialer.Dialer
	// Forward makes the connections to the proxy, and those to the API server
	// where the kubeconfig names no proxy. If nil, [dialer.Direct]. It can't be
	// set along with Dialer, and neither can ProxyTLS: they would be ignored.
	Forward dialer.Dialer
}

// Client is a way to one API server: one transport, which all that is made
// of it shares, and the connections of it. It is safe for concurrent use.
//
// # Exec, attach and port-forward
//
// client-go makes connections of its own for them, for which a rest.Config's
// transport and dial function are not used. They take a proxy, though, and so
// [Client.Config] names one: a bridge on loopback, started when it is first
// asked for, with a random password, which leads to the API server by the
// Client's route and nowhere else. TLS goes through it end to end. So
// remotecommand's executors, portforward with its dialers (SPDY, WebSocket, and
// one with the other to fall back to), Cluster API's etcd dialer and whatever
// else is made of a rest.Config take the route unchanged.
// [Client.Exec] and [Client.PortForward] do the same in one call, and end with
// their context.
type Client struct {
	host       string // the API server's URL
	serverName string // that of its certificate
	gate       *gate  // the transport
	bypass     *bypass
	conns      *connections
	bridge     *bridge
	once       sync.Once // Close
}

// NewClient returns a Client for the current context of config, which is only
// read. Nothing is dialed yet. The caller closes the Client.
//
// The route is config's proxy-url, and nothing else: no variable of the
// environment (HTTPS_PROXY, NO_PROXY, KUBECONFIG, KUBERNETES_*) and no file
// of the home directory has a say. As in client-go, the proxy resolves the
// API server's name, for socks5 too; socks5h, which client-go refuses, is
// accepted and means the same.
//
// Every kind of user works: certificates, tokens, basic authentication, exec
// and auth provider plugins, impersonation. Files of certificates and keys are
// read once, now; a token file is read again as it changes. Tokens that an
// auth provider renews are kept in memory and not written anywhere.
//
// Errors of the kubeconfig's fields and of opts are [*FieldError] and hold no
// secret.
func NewClient(config *clientcmdapi.Config, opts *ClientOptions) (*Client, error) {
	current, err := currentEntries(config)
	if err != nil {
		return nil, err
	}
	if err := checkServer(current.cluster.Server); err != nil {
		return nil, fieldError(current.field("server"), err)
	}
	if opts == nil {
		opts = &ClientOptions{}
	}
	d, proxy, err := opts.route(current)
	if err != nil {
		return nil, err
	}
	inner, err := restConfig(current)
	if err != nil {
		return nil, err
	}
	conns := newConnections(d)
	g, past, err := newTransport(inner, proxy, conns)
	if err != nil {
		conns.close()
		return nil, err
	}
	b, err := newBridge(inner.Host, conns)
	if err != nil {
		conns.close()
		return nil, err
	}
	c := &Client{host: inner.Host, serverName: inner.ServerName, gate: g, bypass: past, conns: conns, bridge: b}
	if c.serverName == "" {
		c.serverName = b.host()
	}
	return c, nil
}

// Config returns a new rest.Config for the API server. What is made of it
// (clientsets, dynamic clients, controller-runtime's) shares the Client's one
// transport and stops working when the Client is closed.
//
// The caller may change what is not about the connection: QPS, Burst,
// UserAgent, content types, Timeout, Impersonate; and wrap the transport, by
// the method Wrap. Credentials and TLS are in the transport: the rest.Config
// holds none, and client-go refuses TLS fields along with a transport.
// TLSClientConfig.ServerName, Proxy and WrapTransport are for exec, attach and
// port-forward, which find no credentials and no CA without them, and fail.
func (c *Client) Config() *rest.Config {
	return &rest.Config{
		Host: c.host, Transport: c.gate,
		TLSClientConfig: rest.TLSClientConfig{ServerName: c.serverName},
		Proxy:           c.bridge.proxy, WrapTransport: c.bypass.wrap,
	}
}

// Bridge returns the URL of the Client's proxy on loopback, with its password,
// and starts it if nothing has yet: for a program that this process runs and
// that takes a proxy URL, such as kubectl by the proxy-url of a kubeconfig.
// Whoever has the URL reaches the API server, and nothing else, by the Client's
// route; it gives no credentials of the API server. It works until the Client
// is closed; then the error is net.ErrClosed.
func (c *Client) Bridge() (*url.URL, error) { return c.bridge.clientURL() }

// HTTP returns an HTTP client that authenticates to the API server by the
// kubeconfig and follows no environment. Requests to another host go to that
// host through the same route, with the same credentials: don't make them.
func (c *Client) HTTP() *http.Client { return &http.Client{Transport: c.gate} }

// Close closes every connection of the Client, idle or in use. Requests that
// are under way, reads of their answers, watches, and every request from then
// on fail with an error that is net.ErrClosed. The goroutines of the
// connections end with them. What goes over the bridge is cut, too, and Close
// waits for the bridge's goroutines. It may be called more than once and
// returns nil.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.conns.close()
		c.gate.CloseIdleConnections()
		c.bridge.close()
	})
	return nil
}

// route returns the dialer to the API server, and the proxy that it goes
// through as a kubeconfig names it.
func (o *ClientOptions) route(current *entries) (dialer.Dialer, *url.URL, error) {
	if o.Dialer != nil {
		if o.Forward != nil || o.ProxyTLS != nil {
			return nil, nil, fieldErrorf("ClientOptions.Dialer", "replaces the route: Forward and ProxyTLS can't be set along with it")
		}
		return o.Dialer, nil, nil
	}
	forward := o.Forward
	if forward == nil {
		forward = dialer.Direct{}
	}
	if current.cluster.ProxyURL == "" {
		return forward, nil, nil
	}
	field := current.field("proxy-url")
	proxy, err := parseProxyURL(current.cluster.ProxyURL)
	if err != nil {
		return nil, nil, fieldError(field, err)
	}
	// A kubeconfig's socks5 is what FromURL calls socks5h.
	u := *proxy
	if u.Scheme == "socks5" {
		u.Scheme = "socks5h"
	}
	dialOpts := &dialer.Options{Forward: forward}
	if o.ProxyTLS != nil {
		dialOpts.TLSConfig = o.ProxyTLS.Clone()
	}
	d, err := dialer.FromURL(&u, dialOpts)
	if err != nil {
		return nil, nil, fieldError(field, err)
	}
	return d, proxy, nil
}

// checkServer looks at what client-go would quote in an error later.
func checkServer(server string) error {
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return errors.New("not a URL: want https://host:port")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("want a URL with a scheme: https://host:port")
	case u.Hostname() == "":
		return errors.New("the URL has no host: want https://host:port")
	case u.User != nil:
		return errors.New("the URL holds user info: credentials belong into the user entry")
	}
	return nil
}
