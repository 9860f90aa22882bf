package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// Options is what a kubeconfig can't say. A nil *Options is the
// zero value.
type Options struct {
	// ProxyTLS is the TLS configuration of the connection to an https proxy:
	// its CA, a client certificate for the proxy. It takes the place of the
	// extension's proxyTLS as a whole, of which no file and no Secret is read
	// then. If nil, the extension's; without one, the system's roots and the
	// proxy's host. The settings of the API server are never used for the proxy.
	// It is copied.
	ProxyTLS *tls.Config
	// Dialer replaces the kubeconfig's route: it is asked for the API server's
	// address, and for those of the extension's endpoints, and proxy-url, noProxy,
	// header and proxyTLS are not used. This is where tunnels come in, and
	// [dialer.FromEnvironment]. If nil, the route is the kubeconfig's.
	Dialer dialer.Dialer
	// Forward makes the connections to the proxy, and those to the API server
	// where the kubeconfig names no proxy or noProxy lists its address. If nil,
	// [dialer.Direct]. It can't be set along with Dialer, and neither can
	// ProxyTLS: they would be ignored.
	Forward dialer.Dialer
	// ReadSecret reads the data of a Secret, for a kubeconfig whose extension
	// keeps the client certificate of an https proxy in one (Route.ProxyTLS.Secret).
	// It reads from the cluster where that Secret is, which is not the kubeconfig's
	// own cluster. It is called for each connection to the proxy, so that
	// the Secret may change, by several goroutines at once. If nil, such a
	// kubeconfig is an error.
	//
	// The author of the kubeconfig chooses the name, and the proxy that sees the
	// certificate. So return only a Secret that this author may use, such as one of the
	// namespace of the kubeconfig's Secret. One with a key proxy-url or gateway is not
	// used for another proxy than that.
	ReadSecret func(ctx context.Context, namespace, name string) (map[string][]byte, error)

	// Source is where the kubeconfig comes from, and changes: the Client follows
	// it until it is closed. If nil, the kubeconfig is the one given to
	// [New] for good.
	Source Source
	// Changed is called when the Client has taken up a new kubeconfig of the
	// Source, with nil, and when the Source has no kubeconfig that can be used,
	// with the reason: the last good one stays in use. After an error it is also
	// called, with nil, when the Source is back at the kubeconfig that is in
	// use. Calls come one after the other. It must not close the Client, which
	// would wait for it. If nil, nobody is told.
	Changed func(err error)
	// Linger is how long requests and watches that have begun with the kubeconfig
	// before may go on. If zero, 30 seconds; if negative, they are cut at once.
	Linger time.Duration
}

const defaultLinger = 30 * time.Second

func (o *Options) lingerTime() time.Duration {
	if o.Linger == 0 {
		return defaultLinger
	}
	return o.Linger
}

func (o *Options) reportChange(err error) {
	if o.Changed != nil {
		o.Changed(err)
	}
}

func (o *Options) routeOptions() *route.Options {
	return &route.Options{ProxyTLS: o.ProxyTLS, Dialer: o.Dialer, Forward: o.Forward, ReadSecret: o.ReadSecret}
}

// String returns the API server's URL, as it is now.
func (c *Client) String() string { return "connect.Client{" + c.currentRoute().Server.Text + "}" }

// Format writes String, whatever the verb.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (c *Client) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String returns which options are set.
func (o Options) String() string {
	return fmt.Sprintf("connect.Options{ProxyTLS: %t, Dialer: %t, Forward: %t, ReadSecret: %t, Source: %t, Changed: %t, Linger: %s}",
		o.ProxyTLS != nil, o.Dialer != nil, o.Forward != nil, o.ReadSecret != nil, o.Source != nil, o.Changed != nil, o.Linger)
}

// Format writes String, whatever the verb: a tls.Config holds private keys, a
// dialer may hold a password.
func (o Options) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, o.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (o Options) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
