package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"

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
}

func (o *Options) routeOptions() *route.Options {
	return (*route.Options)(o)
}

// String returns the API server's URL, as it is now.
func (c *Client) String() string { return "connect.Client{" + c.currentRoute().Server.Text + "}" }

// Format writes String, whatever the verb.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (c *Client) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String returns which options are set.
func (o Options) String() string {
	return fmt.Sprintf("connect.Options{ProxyTLS: %t, Dialer: %t, Forward: %t, ReadSecret: %t}",
		o.ProxyTLS != nil, o.Dialer != nil, o.Forward != nil, o.ReadSecret != nil)
}

// Format writes String, whatever the verb: a tls.Config holds private keys, a
// dialer may hold a password.
func (o Options) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, o.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (o Options) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
