package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"

	"github.com/causewayproject/causeway/dialer"
)

// A proxy that is asked for itself is not dialed.
func TestLoopTarget(t *testing.T) {
	forward := dialer.Func(func(context.Context, string, string) (net.Conn, error) {
		t.Error("the proxy was dialed")
		return nil, net.ErrClosed
	})
	for _, tt := range []struct {
		addr, target string
		want         bool
	}{
		{"proxy.example.com:3128", "proxy.example.com:3128", true},
		{"proxy.example.com:3128", "PROXY.example.com.:03128", true},
		{"192.0.2.1:3128", "[::ffff:192.0.2.1]:3128", true},
		{"[2001:db8::1]:3128", "[2001:db8:0::1]:3128", true},
		{"192.0.2.1:3128", "192.0.2.1:3129", false},
		{"192.0.2.1:3128", "192.0.2.2:3128", false},
		{"proxy.example.com:3128", "proxy.example.org:3128", false},
	} {
		for _, d := range []dialer.Dialer{
			&dialer.HTTPConnect{Addr: tt.addr, Forward: forward},
			&dialer.HTTPConnect{Addr: tt.addr, Forward: forward, TLSConfig: &tls.Config{}, HTTP2: &dialer.HTTP2{}},
			&dialer.SOCKS5{Addr: tt.addr, Forward: forward},
		} {
			if !tt.want {
				forward := dialer.Func(func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed })
				d = &dialer.SOCKS5{Addr: tt.addr, Forward: forward}
			}
			_, err := d.DialContext(testContext(t), "tcp", tt.target)
			var e *dialer.Error
			if errors.Is(err, dialer.ErrLoop) != tt.want || !errors.As(err, &e) || tt.want && e.Phase != dialer.PhaseConfig {
				t.Errorf("%T %s to %s: got %v, want a loop: %t", d, tt.addr, tt.target, err, tt.want)
			}
		}
	}
}

// A Forward that leads back is found, however far it goes.
func TestLoopForward(t *testing.T) {
	http, socks := &dialer.HTTPConnect{Addr: "a:3128"}, &dialer.SOCKS5{Addr: "b:1080"}
	http.Forward, socks.Forward = socks, http
	secure := &dialer.HTTPConnect{Addr: "c:443", TLSConfig: &tls.Config{}, HTTP2: &dialer.HTTP2{}}
	// As a router would, that sends all but a: through http.
	secure.Forward = dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&dialer.SOCKS5{Addr: "d:1080", Forward: secure}).DialContext(ctx, network, address)
	})
	for _, d := range []dialer.Dialer{http, socks, secure} {
		if _, err := d.DialContext(testContext(t), "tcp", target); !errors.Is(err, dialer.ErrLoop) {
			t.Errorf("%T: got %v, want ErrLoop", d, err)
		}
	}
}

// The same dialer may be used for another purpose while it dials: to fetch
// credentials, say.
func TestLoopNotInAuthenticator(t *testing.T) {
	nested := 0
	d := &dialer.HTTPConnect{Forward: checked(t)}
	d.Addr = scripted(t, false, "HTTP/1.1 200 OK\r\n\r\n")
	d.Auth = dialer.AuthFunc(func(ctx context.Context, c *dialer.Challenge) (string, error) {
		if nested++; nested > 1 {
			return "", nil
		}
		conn, err := d.DialContext(ctx, "tcp", "vault.example.com:8200")
		if err == nil {
			conn.Close()
		}
		return "", err
	})
	conn, err := d.DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
