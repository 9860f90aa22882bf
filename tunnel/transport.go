package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/internal/rotate"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// DialFunc is the type of net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// CheckAddress returns an [Error] of [CodeConfig] unless the address is one of a server that
// somebody can dial: host:port, or a ws or wss URL. The error holds no password of a URL.
func CheckAddress(address string) error {
	_, _, err := parseAddress(address)
	return err
}

// parseAddress returns the URL of a WebSocket, or nil for host:port, and what is dialed.
func parseAddress(address string) (u *url.URL, target string, err error) {
	target = address
	if strings.Contains(address, "://") {
		if u, err = websocket.ParseURL(address); err != nil {
			return nil, "", configError("%w", err)
		}
		target = websocket.HostPort(u)
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		// Without the address, which may be a URL with a password that lacks its scheme.
		if reason, ok := errors.AsType[*net.AddrError](err); ok {
			err = errors.New(reason.Err)
		}
		if _, ip := netip.ParseAddr(address); ip == nil {
			err = fmt.Errorf("%w; IPv6 stands in brackets, as in [2001:db8::1]:8443", err)
		}
		return nil, "", configError("the server's address is neither host:port nor a ws or wss URL: %w", err)
	}
	if err := hostport.Check(host, port); err != nil {
		return nil, "", configError("the server's address: %w", err)
	}
	return u, target, nil
}

// ListenWebSocket returns a listener that accepts WebSockets (RFC 6455) on the connections
// of l, for agents behind a load balancer that passes nothing else, with any path. outer is
// the configuration of the outer TLS of wss, with a certificate; nil means none. Close
// closes l and waits for the listener's goroutines; connections that were accepted live on.
// A client has 5 seconds and 8 KiB for its request; of more than 1,000 that have not sent
// it the oldest are closed, as [Server] says of MaxPending.
func ListenWebSocket(l net.Listener, outer *tls.Config) net.Listener {
	return carrier.ListenWebSocket(l, outer)
}

// dialCarrier connects to a server and makes the carrier. outer is the configuration of the
// outer TLS of a wss URL, or nil. The error does not repeat the address: the caller adds it.
func dialCarrier(ctx context.Context, dial DialFunc, address string, outer, config *tls.Config) (*carrier.Conn, error) {
	u, target, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return rotate.Dial(ctx, &net.Dialer{}, network, address)
		}
	}
	conn, err := dial(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	if u != nil {
		conn, err = carrier.ClientWebSocket(ctx, conn, u, outer)
	}
	var c *carrier.Conn
	if err == nil {
		c, err = carrier.Client(ctx, conn, config)
	}
	_, port, _ := net.SplitHostPort(target)
	proxy, addr := rotate.Reached(ctx)
	if resolved := proxy == addr && strings.HasSuffix(addr, ":"+port); err != nil && proxy != "" && proxy != target && !resolved {
		err = fmt.Errorf("through the proxy %s: %w", proxy, err)
	}
	return c, err
}

// nameAddress returns err, which may be nil, with the address that was reached of a name,
// unless err has one.
func nameAddress(ctx context.Context, err error) error {
	name, addr := rotate.Reached(ctx)
	if op, ok := errors.AsType[*net.OpError](err); name == addr || ok && op.Addr != nil {
		return err
	}
	if err == nil {
		return errors.New("at " + addr)
	}
	return fmt.Errorf("at %s: %w", addr, err)
}

// hostOf returns the host in the address of a server, without a port; empty
// if the address is not one.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && strings.Contains(address, "://") {
		return u.Hostname()
	}
	host, _, _ := net.SplitHostPort(address)
	return host
}
