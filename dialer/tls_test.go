package dialer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

func TestHTTPSProxy(t *testing.T) {
	proxyCA, otherCA := pki.NewCA("proxy"), pki.NewCA("other")
	server := proxyCA.Server("127.0.0.1", "proxy.example.com")
	var seen proxytest.Request
	p := &proxytest.HTTP{Log: func(r proxytest.Request) { seen = r }, Dial: toEcho(t)}
	addr := serve(t, tls.NewListener(listen(t), &tls.Config{
		Certificates: []tls.Certificate{server},
		ClientAuth:   tls.RequestClientCert,
	}), p.Handle)

	dial := func(t *testing.T, cfg *tls.Config) error {
		d := &dialer.HTTPConnect{Addr: addr, TLSConfig: cfg, Forward: checked(t)}
		conn, err := d.DialContext(testContext(t), "tcp", target)
		if err != nil {
			return err
		}
		defer conn.Close()
		exchange(t, conn, "")
		return nil
	}
	t.Run("own CA, name from Addr", func(t *testing.T) {
		if err := dial(t, &tls.Config{RootCAs: proxyCA.Pool()}); err != nil {
			t.Fatal(err)
		}
		if seen.ClientCertificate {
			t.Error("the proxy was shown a client certificate")
		}
	})
	t.Run("own name", func(t *testing.T) {
		if err := dial(t, &tls.Config{RootCAs: proxyCA.Pool(), ServerName: "proxy.example.com"}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("client certificate", func(t *testing.T) {
		cfg := &tls.Config{RootCAs: proxyCA.Pool(), Certificates: []tls.Certificate{proxyCA.Client("controller")}}
		if err := dial(t, cfg); err != nil || !seen.ClientCertificate {
			t.Errorf("got %v, certificate seen: %t", err, seen.ClientCertificate)
		}
		if cfg.ServerName != "" || cfg.NextProtos != nil {
			t.Error("the caller's tls.Config was changed")
		}
	})
	for name, cfg := range map[string]*tls.Config{
		"another CA":   {RootCAs: otherCA.Pool()},
		"system roots": {},
		"another name": {RootCAs: proxyCA.Pool(), ServerName: "proxy.example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			err := dial(t, cfg)
			var e *dialer.Error
			var bad *tls.CertificateVerificationError
			if !errors.As(err, &e) || e.Phase != dialer.PhaseTLS || !errors.As(err, &bad) || e.Proxy != "https://"+addr {
				t.Errorf("got %v, want a certificate error of the tls phase", err)
			}
		})
	}
}

// Only http/1.1 is offered: a proxy that prefers HTTP/2 must not choose it.
func TestHTTPSProxyALPN(t *testing.T) {
	ca := pki.NewCA("proxy")
	proxy := func(t *testing.T, protos ...string) *dialer.HTTPConnect {
		p := &proxytest.HTTP{Dial: toEcho(t)}
		addr := serve(t, tls.NewListener(listen(t), &tls.Config{
			Certificates: []tls.Certificate{ca.Server("127.0.0.1")},
			NextProtos:   protos,
		}), p.Handle)
		return &dialer.HTTPConnect{Addr: addr, TLSConfig: &tls.Config{RootCAs: ca.Pool(), NextProtos: []string{"h2"}}, Forward: checked(t)}
	}
	t.Run("prefers h2", func(t *testing.T) {
		conn, err := proxy(t, "h2", "http/1.1").DialContext(testContext(t), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("got ALPN %q", got)
		}
		exchange(t, conn, "")
	})
	t.Run("no http/1.1", func(t *testing.T) {
		// Not h2 alone: for that, crypto/tls falls back to no protocol.
		_, err := proxy(t, "other").DialContext(testContext(t), "tcp", target)
		var e *dialer.Error
		if !errors.As(err, &e) || e.Phase != dialer.PhaseTLS || !strings.Contains(err.Error(), "application protocol") {
			t.Errorf("got %v, want an error about the application protocol", err)
		}
	})
}

func TestHTTPSProxyHangs(t *testing.T) {
	d := &dialer.HTTPConnect{Addr: serve(t, listen(t), hold), TLSConfig: &tls.Config{}, Forward: checked(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 20*1e6)
	defer cancel()
	checkTimeout(t, d, ctx)
}

func TestPlainProxyAsHTTPS(t *testing.T) {
	addr := serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
	})
	_, err := (&dialer.HTTPConnect{Addr: addr, TLSConfig: &tls.Config{}, Forward: checked(t)}).DialContext(testContext(t), "tcp", target)
	var e *dialer.Error
	var record tls.RecordHeaderError
	if !errors.As(err, &e) || e.Phase != dialer.PhaseTLS || !errors.As(err, &record) {
		t.Errorf("got %v, want a record header error of the tls phase", err)
	}
}

// Proxies behind proxies: each is reached through the one before it, with its
// own TLS, and an error names the hop.
func TestChainedProxies(t *testing.T) {
	ca1, ca2 := pki.NewCA("one"), pki.NewCA("two")
	tlsProxy := func(ca *pki.CA, handle func(context.Context, net.Conn)) string {
		return serve(t, tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}}), handle)
	}
	last := &proxytest.SOCKS5{Username: "u", Password: awkward, Dial: toEcho(t)}
	forward := checked(t)
	build := func(password string) *dialer.SOCKS5 {
		one := &dialer.HTTPConnect{Addr: tlsProxy(ca1, (&proxytest.HTTP{}).Handle), TLSConfig: &tls.Config{RootCAs: ca1.Pool()}, Forward: forward}
		two := &dialer.HTTPConnect{Addr: tlsProxy(ca2, (&proxytest.HTTP{}).Handle), TLSConfig: &tls.Config{RootCAs: ca2.Pool()}, Forward: one}
		return &dialer.SOCKS5{Addr: serve(t, listen(t), last.Handle), Credentials: dialer.Password("u", password), Forward: two}
	}
	conn, err := build(awkward).DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchange(t, conn, "")

	_, err = build("wrong").DialContext(testContext(t), "tcp", target)
	if !errors.Is(err, dialer.ErrLogin) {
		t.Errorf("got %v, want ErrLogin", err)
	}

	broken := build(awkward)
	two := broken.Forward.(*dialer.HTTPConnect)
	two.TLSConfig = &tls.Config{RootCAs: ca1.Pool()}
	_, err = broken.DialContext(testContext(t), "tcp", target)
	var outer, inner *dialer.Error
	if !errors.As(err, &outer) || !errors.As(outer.Err, &inner) {
		t.Fatalf("got %v, want an *Error in an *Error", err)
	}
	if outer.Proxy != "socks5://"+broken.Addr || outer.Addr != target || inner.Proxy != "https://"+two.Addr || inner.Addr != broken.Addr || inner.Phase != dialer.PhaseTLS {
		t.Errorf("got %v", err)
	}
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("got %v, want x509.UnknownAuthorityError", err)
	}
}
