package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// DialFunc is the type of net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Transport makes the connections that carry a session: reliable, ordered bytes. The
// tunnel runs its TLS on top of them. Implementations are safe for concurrent use.
type Transport interface {
	// Dial connects to the address of a server. It makes its connection with dial;
	// nil means a net.Dialer. ctx only bounds the dial. The error does not repeat the
	// address: the caller adds it.
	Dial(ctx context.Context, dial DialFunc, address string) (net.Conn, error)
	// Listen waits for agents at an address. ctx only bounds the call. The listener's
	// connections stay open when it is closed.
	Listen(ctx context.Context, address string) (net.Listener, error)
}

// TransportFor returns the default Transport for the address of a server:
// [TCP] for host:port, [WebSocket] for a ws or wss URL. Any other address, or one that
// nobody can dial, is an [Error] of [CodeConfig], which holds no password of a URL.
func TransportFor(address string) (Transport, error) {
	if strings.Contains(address, "://") {
		u, err := parseWebSocketURL(address)
		if err != nil {
			return nil, err
		}
		host, port, _ := net.SplitHostPort(websocket.HostPort(u))
		return WebSocket{}, checkDialable(host, port)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		// Without the address, which may be a URL with a password that lacks its scheme.
		var reason *net.AddrError
		if errors.As(err, &reason) {
			err = errors.New(reason.Err)
		}
		if _, ip := netip.ParseAddr(address); ip == nil {
			err = fmt.Errorf("%w; IPv6 stands in brackets, as in [2001:db8::1]:8443", err)
		}
		return nil, configError("the server's address is neither host:port nor a ws or wss URL: %w", err)
	}
	return TCP{}, checkDialable(host, port)
}

func checkDialable(host, port string) error {
	if err := hostport.Check(host, port); err != nil {
		return configError("the server's address: %w", err)
	}
	return nil
}

// TCP is the Transport for addresses of the form host:port. The zero value is
// ready for use.
type TCP struct {
	// UserTimeout is how long sent data may stay unacknowledged before the kernel
	// closes the connection (RFC 5482). Zero means 30 seconds, a negative value the
	// system's default. It has an effect on Linux only.
	UserTimeout time.Duration
}

var _ Transport = TCP{}

// Dial connects to host:port.
func (t TCP) Dial(ctx context.Context, dial DialFunc, address string) (net.Conn, error) {
	conn, err := dialOrDefault(dial)(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	socket.Tune(conn, t.UserTimeout)
	return conn, nil
}

// Listen waits for connections at host:port. An empty host is every address,
// port 0 one that the system chooses.
func (t TCP) Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return socket.TuneListener(l, t.UserTimeout), nil
}

// WebSocket is the Transport for ws:// and wss:// URLs (RFC 6455), for a load
// balancer that passes nothing else. The zero value is ready for use.
type WebSocket struct {
	// TLS is the configuration of the outer TLS of wss, which a load balancer may
	// terminate. In Dial nil means the system's roots, and an empty ServerName means
	// the URL's host. To listen at a wss URL it is required, with a certificate; at
	// host:port nil means no outer TLS.
	TLS *tls.Config
	// Header is sent with the request of a Dial; for example credentials for a load
	// balancer. The URL's user info is added as Basic credentials.
	Header http.Header
}

var _ Transport = WebSocket{}

// Dial connects to a ws:// or wss:// URL. The outer TLS is to the URL's host,
// whatever dial goes through.
func (w WebSocket) Dial(ctx context.Context, dial DialFunc, address string) (net.Conn, error) {
	u, err := parseWebSocketURL(address)
	if err != nil {
		return nil, err
	}
	return carrier.DialWebSocket(ctx, dialOrDefault(dial), u, w.TLS, w.Header)
}

// Listen waits for agents at a ws:// or wss:// URL, whose path they have to
// ask for, or at host:port, with any path, and with outer TLS if the field TLS
// is not nil. Close waits for the listener's goroutines; connections that were
// accepted live on. A client has 5 seconds and 8 KiB for its request; of more
// than 1,000 that have not sent it the oldest are closed, as [Server] says of
// MaxPending.
func (w WebSocket) Listen(ctx context.Context, address string) (net.Listener, error) {
	u, config := &url.URL{Scheme: "ws", Host: address}, w.TLS
	if strings.Contains(address, "://") {
		var err error
		if u, err = parseWebSocketURL(address); err != nil {
			return nil, err
		}
		switch {
		case u.Scheme == "ws":
			config = nil
		case config == nil:
			return nil, configError("to listen at a wss URL takes WebSocket.TLS")
		}
	}
	host := u.Host
	if u.Port() == "" {
		host = websocket.HostPort(u)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return carrier.ListenWebSocket(l, u.Path, config), nil
}

// NewListener is Listen on a listener that is there already, such as one that reads the
// PROXY protocol: with any path, and with outer TLS if the field TLS is not nil. The
// listener that it returns owns l.
func (w WebSocket) NewListener(l net.Listener) net.Listener {
	return carrier.ListenWebSocket(l, "", w.TLS)
}

// parseWebSocketURL returns a [CodeConfig], which does not repeat the address.
func parseWebSocketURL(address string) (*url.URL, error) {
	u, err := websocket.ParseURL(address)
	if err != nil {
		return nil, configError("%w", err)
	}
	return u, nil
}

// dialCarrier connects to a server by t, or by the default Transport if t is nil, and
// makes the carrier.
func dialCarrier(ctx context.Context, t Transport, dial DialFunc, address string, config *tls.Config) (*carrier.Conn, error) {
	if t == nil {
		var err error
		if t, err = TransportFor(address); err != nil {
			return nil, err
		}
	}
	conn, err := t.Dial(ctx, dial, address)
	if err != nil {
		return nil, err
	}
	return carrier.Client(ctx, conn, config)
}

// hostOf returns the host in the address of a server, without a port; empty
// if the address is not one.
func hostOf(address string) string {
	if strings.Contains(address, "://") {
		if u, err := url.Parse(address); err == nil {
			return u.Hostname()
		}
		return ""
	}
	host, _, _ := net.SplitHostPort(address)
	return host
}

func dialOrDefault(dial DialFunc) DialFunc {
	if dial == nil {
		return (&net.Dialer{}).DialContext
	}
	return dial
}
