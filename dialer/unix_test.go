package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// serveUnix serves on a socket whose path has what a URL must encode.
func serveUnix(t *testing.T, wrap func(net.Listener) net.Listener, handle func(context.Context, net.Conn)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a b?%#.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		l = wrap(l)
	}
	serve(t, l, handle)
	return path
}

func TestUnixProxy(t *testing.T) {
	var got proxytest.Request
	log := func(r proxytest.Request) { got = r }
	httpProxy := &proxytest.HTTP{Username: "u", Password: awkward, Dial: toEcho(t), Log: log}
	socksProxy := &proxytest.SOCKS5{Username: "u", Password: awkward, Dial: toEcho(t), Log: log}
	for scheme, handle := range map[string]func(context.Context, net.Conn){
		"http+unix":    httpProxy.Handle,
		"socks5+unix":  socksProxy.Handle,
		"socks5h+unix": socksProxy.Handle,
	} {
		t.Run(scheme, func(t *testing.T) {
			path := serveUnix(t, nil, handle)
			u, err := dialer.ParseURL((&url.URL{Scheme: scheme, User: url.UserPassword("u", awkward), Path: path}).String())
			if err != nil {
				t.Fatal(err)
			}
			d, err := dialer.FromURL(u, &dialer.Options{
				Forward:  checked(t),
				Resolver: dnstest.Hosts{"api.example.com.": {"192.0.2.10"}}.Resolver(),
			})
			if err != nil {
				t.Fatal(err)
			}
			conn, err := d.DialContext(testContext(t), "tcp4", "api.example.com:6443")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, ok := conn.(*net.UnixConn); !ok || conn.RemoteAddr().Network() != "unix" || conn.RemoteAddr().String() != path {
				t.Errorf("got a %T to %v, want the raw connection to %s", conn, conn.RemoteAddr(), path)
			}
			want := "api.example.com:6443"
			if scheme == "socks5+unix" {
				want = target // resolved here
			}
			if got.Target != want {
				t.Errorf("the proxy was asked for %s, want %s", got.Target, want)
			}
			exchange(t, conn, "")
		})
	}
}

func TestUnixProxyConns(t *testing.T) {
	path := serveUnix(t, nil, (&proxytest.HTTP{}).Handle)
	d := &dialer.HTTPConnect{Addr: "unix:" + path}
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(d, "") })
}

func TestUnixProxyTLS(t *testing.T) {
	ca := pki.NewCA("proxy")
	path := serveUnix(t, func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{ca.Server("proxy.example.com")}})
	}, (&proxytest.HTTP{Dial: toEcho(t)}).Handle)
	d := &dialer.HTTPConnect{Addr: "unix:" + path, TLSConfig: &tls.Config{RootCAs: ca.Pool()}}
	_, err := d.DialContext(testContext(t), "tcp", target)
	var e *dialer.Error
	if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig || !strings.Contains(err.Error(), "ServerName is required") || e.Proxy != "https+unix://"+path {
		t.Errorf("got %v, want that ServerName is required", err)
	}
	d.TLSConfig.ServerName = "proxy.example.com"
	conn, err := d.DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchange(t, conn, "")
}

func TestUnixProxyErrors(t *testing.T) {
	for _, tt := range []struct{ addr, want string }{
		{"unix:", "no absolute path"},
		{"unix:run/proxy.sock", "no absolute path"},
		{"unix:/run/", "no absolute path"},
		{"unix:/run/\x00", "NUL"},
		{"unix:@abstract", "no absolute path"},
	} {
		for _, d := range []dialer.Dialer{&dialer.HTTPConnect{Addr: tt.addr}, &dialer.SOCKS5{Addr: tt.addr}} {
			_, err := d.DialContext(testContext(t), "tcp", target)
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%T %q: got %v, want %q", d, tt.addr, err, tt.want)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "none.sock")
	for want, d := range map[string]dialer.Dialer{
		"http+unix://" + path:   &dialer.HTTPConnect{Addr: "unix:" + path},
		"socks5+unix://" + path: &dialer.SOCKS5{Addr: "unix:" + path},
	} {
		_, err := d.DialContext(testContext(t), "tcp", target)
		var e *dialer.Error
		if !errors.As(err, &e) || e.Phase != dialer.PhaseTCP || e.Proxy != want || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want that %s does not exist", err, want)
		}
	}
	// A proxy reaches no socket of this machine.
	behind := &dialer.HTTPConnect{Addr: "unix:/run/x", Forward: &dialer.SOCKS5{Addr: "proxy.invalid:1080"}}
	if _, err := behind.DialContext(testContext(t), "tcp", target); !errors.Is(err, net.UnknownNetworkError("unix")) {
		t.Errorf("got %v, want an unknown network", err)
	}
}
