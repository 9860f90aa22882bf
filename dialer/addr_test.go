package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
)

// A password that got into Addr is told to nobody: no name server, no proxy, no
// error and no trace.
func TestAddrSecret(t *testing.T) {
	for _, addr := range []string{
		"canary@p:3128", "user:canary@p:3128", "canary@[2001:db8::1]:3128", "[canary@p]:3128", "[canary%40p]:3128", "canary%40p:3128",
		"http://user:canary@p:3128", "http://canary@p:3128", "//user:canary@p:3128", "//canary@p:3128", "socks5://user:canary@p", "https://canary@p",
		"user:canary@p", "p:canary", "p:3128/canary", "p/canary:3128", "p?canary:3128", "p#canary:3128", "canary\\@p:1", "canary p:3128", "canary\n:3128",
		"c\u00e4nary\u200d\u0000@p:3128", "canary\u202e.:3128",
		"unix://user:canary@/run/proxy.sock", "http+unix://user:canary@/run/proxy.sock", "http+unix://canary@/run/p:1", "unix:canary@/run/proxy.sock",
	} {
		forward := dialer.Func(func(_ context.Context, network, address string) (net.Conn, error) {
			t.Errorf("%q: dialed %s %q", addr, network, address)
			return nil, &net.OpError{Op: "dial", Err: errors.New(address)}
		})
		for name, d := range map[string]dialer.Dialer{
			"http":   &dialer.HTTPConnect{Addr: addr, Forward: forward},
			"https":  &dialer.HTTPConnect{Addr: addr, Forward: forward, TLSConfig: &tls.Config{ServerName: "p"}, HTTP2: &dialer.HTTP2{}},
			"socks5": &dialer.SOCKS5{Addr: addr, Forward: forward, Resolver: names{"api": {"192.0.2.1"}}, Credentials: dialer.Password("u", "p")},
		} {
			ctx := dialer.WithTrace(t.Context(), &dialer.Trace{Start: func(e dialer.Event) { t.Errorf("%s, %q: traced %+v", name, addr, e) }})
			_, err := d.DialContext(ctx, "tcp", "api:443")
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig || e.Addr != "api:443" || !strings.Contains(err.Error(), "field Addr") {
				t.Errorf("%s, %q: got %v, want an *Error that names the field Addr", name, addr, err)
				continue
			}
			if text := fmt.Sprintf("%v %#v %s", err, e, e.Err); strings.Contains(text, "anary") {
				t.Errorf("%s, %q: got %s", name, addr, text)
			}
		}
		// So it is in a URL that was not parsed but put together.
		for _, scheme := range []string{"http", "socks5"} {
			u := &url.URL{Scheme: scheme, Host: addr, User: url.UserPassword("", strings.Repeat("x", 300))}
			if d, err := dialer.FromURL(u, &dialer.Options{Forward: forward}); err == nil || strings.Contains(err.Error(), "anary") {
				t.Errorf("%q in a %s URL: got %T, %v", addr, scheme, d, err)
			}
		}
	}
}

// What a proxy's address may be is dialed as it is, a name in its ASCII form.
func TestAddr(t *testing.T) {
	for addr, want := range map[string]string{
		"p:3128":                       "tcp p:3128",
		"proxy_1.example.:3128":        "tcp proxy_1.example.:3128",
		"192.0.2.1:3128":               "tcp 192.0.2.1:3128",
		"[2001:db8::1]:3128":           "tcp [2001:db8::1]:3128",
		"[fe80::1%eth0]:3128":          "tcp [fe80::1%eth0]:3128",
		"pr\u00f6xy.example:3128":      "tcp xn--prxy-6qa.example:3128",
		"unix:/run/user@host/p.sock":   "unix /run/user@host/p.sock",
		"unix:///run/user@host/p.sock": "unix ///run/user@host/p.sock",
	} {
		var got string
		forward := dialer.Func(func(_ context.Context, network, address string) (net.Conn, error) {
			got = network + " " + address
			return nil, net.ErrClosed
		})
		for _, d := range []dialer.Dialer{&dialer.HTTPConnect{Addr: addr, Forward: forward}, &dialer.SOCKS5{Addr: addr, Forward: forward}} {
			got = ""
			if _, err := d.DialContext(t.Context(), "tcp", "api:443"); got != want {
				t.Errorf("%T, %q: dialed %q, %v; want %q", d, addr, got, err, want)
			}
		}
	}
}
