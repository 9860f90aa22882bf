package tunnel

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// DialFunc is the type of net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Transport is what carries a session: reliable, ordered bytes. TLS is not
// its business, it is spoken on what the Transport gives. Implementations are
// safe for concurrent use.
type Transport interface {
	// Dial connects to the address of a server. It makes its connection with
	// dial; nil is a net.Dialer. ctx bounds the dial alone. The error is the
	// cause without the address: whoever calls says what it was about.
	Dial(ctx context.Context, dial DialFunc, address string) (net.Conn, error)
	// Listen waits for agents at an address. ctx bounds the call alone. The
	// connections of the listener outlive it.
	Listen(ctx context.Context, address string) (net.Listener, error)
}

// TransportFor returns the default Transport for the address of a server:
// [TCP] for host:port, [WebSocket] for a ws or wss URL. Any other address is an
// [Error] of [CodeConfig], which holds no password of a URL.
func TransportFor(address string) (Transport, error) {
	if strings.Contains(address, "://") {
		if _, err := parseWebSocketURL(address); err != nil {
			return nil, err
		}
		return WebSocket{}, nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, configError("without a Transport of its own, the server's address is host:port or a ws or wss URL: %w", err)
	}
	return TCP{}, nil
}

// carry connects to a server by t, or by the default Transport if t is nil, and
// makes the carrier.
func carry(ctx context.Context, t Transport, dial DialFunc, address string, config *tls.Config) (*carrier, error) {
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
	return secure(ctx, conn, config, false)
}

// withoutPassword returns the address of a server for people. The query of a URL
// may be a secret too.
func withoutPassword(address string) string {
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		if err != nil {
			return "(not a URL)"
		}
		if u.RawQuery != "" {
			u.RawQuery = "xxxxx"
		}
		address = u.Redacted()
	}
	return wire.Printable(address)
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

// closeWait is how long a Close may take to say goodbye to a peer that takes
// no bytes.
const closeWait = 100 * time.Millisecond

// lowest returns what is below conn, as far as NetConn leads.
func lowest(conn net.Conn) net.Conn {
	for {
		n, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		below := n.NetConn()
		if below == nil {
			return conn
		}
		conn = below
	}
}

// cutAfter closes what is below conn after a while, unless stop is called
// before. It bounds a Close that says goodbye.
func cutAfter(conn net.Conn, wait time.Duration) (stop func() bool) {
	return time.AfterFunc(wait, func() { lowest(conn).Close() }).Stop
}

// flush sends what conn gathers, if it does.
func flush(conn net.Conn) error {
	if f, ok := conn.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}
