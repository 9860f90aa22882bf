package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/causewayproject/causeway/dialer"
)

// proxyAsked is what a client asks for on its way to a proxy: the address that
// it dials, and the name that it sends to an https proxy.
type proxyAsked struct{ Address, ServerName string }

// askedBy dials through the proxy, which answers no handshake.
func askedBy(t *testing.T, tlsProxy bool, dial func(forward dialer.Func)) (asked proxyAsked) {
	t.Helper()
	done := make(chan struct{})
	dial(func(_ context.Context, _, address string) (net.Conn, error) {
		asked.Address = address
		client, server := net.Pipe()
		go func() {
			defer close(done)
			defer server.Close()
			if tlsProxy {
				tls.Server(server, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
					asked.ServerName = hello.ServerName
					return nil, errors.New("enough")
				}}).Handshake()
			}
		}()
		return client, nil
	})
	<-done
	return asked
}

// TestInternationalProxyHost compares with what net/http makes of the same URL.
func TestInternationalProxyHost(t *testing.T) {
	for _, tt := range []struct{ host, want string }{
		{"proxy.example", "proxy.example"},
		{"Proxy.Example", "Proxy.Example"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"BÜCHER.example", "xn--bcher-kva.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"faß.example", "xn--fa-hia.example"},
		{"日本。example", "xn--wgv71a.example"},
	} {
		for _, scheme := range []string{"http", "https", "socks5", "socks5h"} {
			t.Run(scheme+"/"+tt.host, func(t *testing.T) {
				u := &url.URL{Scheme: scheme, Host: tt.host + ":3128"}
				got := askedBy(t, scheme == "https", func(forward dialer.Func) {
					d, err := dialer.FromURL(u, &dialer.Options{Forward: forward})
					if err != nil {
						t.Fatal(err)
					}
					if conn, err := d.DialContext(testContext(t), "tcp", target); err == nil {
						conn.Close()
						t.Error("got a connection")
					}
				})
				peer := askedBy(t, scheme == "https", func(forward dialer.Func) {
					transport := &http.Transport{Proxy: http.ProxyURL(u), DialContext: forward}
					defer transport.CloseIdleConnections()
					req, _ := http.NewRequestWithContext(testContext(t), http.MethodGet, "https://"+target, nil)
					if res, err := transport.RoundTrip(req); err == nil {
						res.Body.Close()
						t.Error("net/http: got an answer")
					}
				})
				want := proxyAsked{Address: tt.want + ":3128"}
				if scheme == "https" {
					want.ServerName = tt.want
				}
				if got != want || peer != want {
					t.Errorf("got %+v, net/http %+v, want %+v", got, peer, want)
				}
			})
		}
	}
}

func TestBadInternationalProxyHost(t *testing.T) {
	for _, addr := range []string{"a\u2488b.example:3128", "b\u00fc cher.example:3128"} {
		d := &dialer.HTTPConnect{Addr: addr, Forward: dialer.Func(func(context.Context, string, string) (net.Conn, error) {
			t.Errorf("%q was dialed", addr)
			return nil, errors.New("dialed")
		})}
		conn, err := d.DialContext(testContext(t), "tcp", target)
		var e *dialer.Error
		if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig {
			t.Errorf("%q: got %v, %v, want an error of the configuration", addr, conn, err)
		}
	}
}
