package dialer_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// outerDial is a proxy of a chain, of a kind: "http", "https" or "socks5".
type outerDial struct {
	addr    string
	dialer  dialer.Dialer
	targets []string // that it was asked for
}

// hops starts a proxy of each kind. Those of https have a certificate authority
// each. The last connects to an echo server, whatever it is asked for.
func hops(t *testing.T, kinds ...string) []*outerDial {
	var all []*outerDial
	for i, kind := range kinds {
		h := &outerDial{}
		note := func(r proxytest.Request) { h.targets = append(h.targets, r.Target) }
		web, socks := &proxytest.HTTP{Log: note}, &proxytest.SOCKS5{Log: note}
		if i == len(kinds)-1 {
			web.Dial, socks.Dial = toEcho(t), toEcho(t)
		}
		switch kind {
		case "http":
			h.addr = serve(t, listen(t), web.Handle)
			h.dialer = &dialer.HTTPConnect{Addr: h.addr}
		case "https":
			ca := pki.NewCA(kind)
			h.addr = serve(t, tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}}), web.Handle)
			h.dialer = &dialer.HTTPConnect{Addr: h.addr, TLSConfig: &tls.Config{RootCAs: ca.Pool()}}
		case "socks5":
			h.addr = serve(t, listen(t), socks.Handle)
			h.dialer = &dialer.SOCKS5{Addr: h.addr}
		}
		all = append(all, h)
	}
	return all
}

func chained(t *testing.T, first dialer.Dialer, all []*outerDial) dialer.Dialer {
	t.Helper()
	proxies := []dialer.Dialer{first}
	for _, h := range all {
		proxies = append(proxies, h.dialer)
	}
	d, err := dialer.Chain(proxies...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestChain(t *testing.T) {
	for _, tt := range []struct{ name, kinds string }{
		{"one", "http"},
		{"http in http", "http http"},
		{"socks5 behind http", "http socks5"},
		{"http behind socks5", "socks5 http"},
		{"https in https", "https https"},
		{"https in https in http", "http https https"},
		{"https in socks5 in https", "https socks5 https"},
		{"three of socks5", "socks5 socks5 socks5"},
		{"https in https in https", "https https https"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := hops(t, strings.Fields(tt.kinds)...)
			conn, err := chained(t, checked(t), all).DialContext(testContext(t), "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exchange(t, conn, "")
			for i, h := range all {
				want := []string{target}
				if i+1 < len(all) {
					want[0] = all[i+1].addr
				}
				if diff := cmp.Diff(want, h.targets); diff != "" {
					t.Errorf("targets of proxy %d (-want +got)\n%s", i+1, diff)
				}
				if forwardOf(h.dialer) != nil {
					t.Errorf("proxy %d: the caller's struct was written to", i+1)
				}
			}
		})
	}
}

func forwardOf(d dialer.Dialer) dialer.Dialer {
	switch d := d.(type) {
	case *dialer.HTTPConnect:
		return d.Forward
	case *dialer.SOCKS5:
		return d.Forward
	}
	return nil
}

// The first element may be reached as it likes, and is taken as it is.
func TestChainFirst(t *testing.T) {
	first := &dialer.HTTPConnect{Addr: "proxy:3128", Forward: dialer.Direct{}}
	d, err := dialer.Chain(first)
	if err != nil || d != dialer.Dialer(first) {
		t.Errorf("got %v, %v; want the element itself", d, err)
	}
	d, err = dialer.Chain(first, &dialer.SOCKS5{Addr: "jump:1080"})
	if err != nil || forwardOf(d) != dialer.Dialer(first) {
		t.Errorf("got %v, %v; want the first as its Forward", d, err)
	}
}

// faulty is a Forwarder that would cut off what is before it.
type faulty struct{ dialer.Direct }

func (faulty) WithForward(dialer.Dialer) (dialer.Dialer, error) { return nil, nil }

func TestChainErrors(t *testing.T) {
	ok := &dialer.HTTPConnect{Addr: "proxy:3128"}
	for _, tt := range []struct {
		name    string
		proxies []dialer.Dialer
		want    string
	}{
		{"empty", nil, "no proxy"},
		{"nil", []dialer.Dialer{nil}, "proxy 1 of 1: the Dialer is nil"},
		{"nil in the middle", []dialer.Dialer{ok, nil, ok}, "proxy 2 of 3: the Dialer is nil"},
		{"nil pointer, first", []dialer.Dialer{(*dialer.HTTPConnect)(nil), ok}, "proxy 1 of 2: the Dialer is nil"},
		{"nil pointer, last", []dialer.Dialer{ok, (*dialer.SOCKS5)(nil)}, "proxy 2 of 2: the Dialer is nil"},
		{"nil function", []dialer.Dialer{dialer.Func(nil), ok}, "proxy 1 of 2: the Dialer is nil"},
		{"Direct behind a proxy", []dialer.Dialer{ok, dialer.Direct{}}, "proxy 2 of 2: a dialer.Direct can't be put behind another"},
		{"function behind a proxy", []dialer.Dialer{ok, ok, dialer.Func(dialer.Direct{}.DialContext)}, "proxy 3 of 3: a dialer.Func can't"},
		{"nil from WithForward", []dialer.Dialer{ok, faulty{}, ok}, "proxy 2 of 3: the method WithForward of dialer_test.faulty returned nil"},
		{"http with a Forward", []dialer.Dialer{ok, &dialer.HTTPConnect{Addr: "x:1", Forward: ok}}, "proxy 2 of 2: field Forward is set"},
		{"socks5 with a Forward", []dialer.Dialer{ok, ok, &dialer.SOCKS5{Addr: "x:1", Forward: ok}}, "proxy 3 of 3: field Forward is set"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := dialer.Chain(tt.proxies...)
			var e *dialer.Error
			if d != nil || !errors.As(err, &e) || e.Phase != dialer.PhaseConfig {
				t.Fatalf("got %v, %v; want an *Error of the config phase", d, err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to contain %q", err, tt.want)
			}
		})
	}
}

// TestWithForwardTwice: with an error there is no Dialer.
func TestWithForwardTwice(t *testing.T) {
	ok := dialer.Direct{}
	for _, d := range []dialer.Forwarder{&dialer.HTTPConnect{Forward: ok}, &dialer.SOCKS5{Forward: ok}, &dialer.Resolve{Forward: ok}} {
		if with, err := d.WithForward(ok); with != nil || err == nil {
			t.Errorf("%T: got %v, %v; want an error alone", d, with, err)
		}
	}
}

// hopErrors are the *Errors of err, from the last proxy of the chain to the
// first.
func hopErrors(err error) (all []*dialer.Error) {
	var e *dialer.Error
	for errors.As(err, &e) {
		all = append(all, e)
		err = e.Err
	}
	return all
}

func TestChainBrokenHop(t *testing.T) {
	for broken := range 3 {
		t.Run(fmt.Sprint(broken+1), func(t *testing.T) {
			all := hops(t, "https", "https", "https")
			all[broken].dialer.(*dialer.HTTPConnect).TLSConfig = &tls.Config{RootCAs: pki.NewCA("another").Pool()}
			_, err := chained(t, checked(t), all).DialContext(testContext(t), "tcp", target)
			var unknown x509.UnknownAuthorityError
			if !errors.As(err, &unknown) {
				t.Fatalf("got %v, want x509.UnknownAuthorityError", err)
			}
			errs := hopErrors(err)
			if len(errs) != 3-broken {
				t.Fatalf("got %d errors in %v, want one for each hop from the broken one on", len(errs), err)
			}
			last := errs[len(errs)-1]
			if last.Proxy != "https://"+all[broken].addr || last.Phase != dialer.PhaseTLS {
				t.Errorf("got %v of %s, want the tls phase of https://%s", last.Phase, last.Proxy, all[broken].addr)
			}
		})
	}
}

// A cancel while a hop is silent closes what leads to it.
func TestChainCancel(t *testing.T) {
	for silent := range 3 {
		t.Run(fmt.Sprint(silent+1), func(t *testing.T) {
			all := hops(t, "http", "https", "socks5")
			ctx, cancel := context.WithCancel(testContext(t))
			closed := make(chan struct{})
			addr := serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
				cancel()
				hold(ctx, conn)
				close(closed)
			})
			switch d := all[silent].dialer.(type) {
			case *dialer.HTTPConnect:
				d.Addr = addr
			case *dialer.SOCKS5:
				d.Addr = addr
			}
			_, err := chained(t, checked(t), all).DialContext(ctx, "tcp", target)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			<-closed
		})
	}
}

// What a hop answered about the next proxy is that hop's answer alone.
func TestChainStatusIsTheHopsOwn(t *testing.T) {
	refusing := func(status int) string {
		return serve(t, listen(t), func(_ context.Context, conn net.Conn) {
			readHead(bufio.NewReader(conn))
			fmt.Fprintf(conn, "HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n", status)
		})
	}
	var asked atomic.Int32
	socksRefusing := serve(t, listen(t), (&proxytest.SOCKS5{
		Log:  func(proxytest.Request) { asked.Add(1) },
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
	}).Handle)
	for _, tt := range []struct {
		name        string
		first, last dialer.Dialer
		inner       int
	}{
		{"403, http", &dialer.HTTPConnect{Addr: refusing(403)}, &dialer.HTTPConnect{Addr: "192.0.2.9:3128"}, 403},
		{"407, http", &dialer.HTTPConnect{Addr: refusing(407)}, &dialer.HTTPConnect{Addr: "192.0.2.9:3128"}, 407},
		{"407, socks5", &dialer.HTTPConnect{Addr: refusing(407)}, &dialer.SOCKS5{Addr: "192.0.2.9:1080"}, 407},
		{"socks5, socks5", &dialer.SOCKS5{Addr: socksRefusing}, &dialer.SOCKS5{Addr: "192.0.2.9:1080"}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked.Store(0)
			d, err := dialer.Chain(tt.first, tt.last)
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.DialContext(testContext(t), "tcp4", "api.example.com:6443")
			var outer, inner *dialer.Error
			if !errors.As(err, &outer) || !errors.As(outer.Err, &inner) {
				t.Fatalf("got %v, want an *Error in an *Error", err)
			}
			if outer.Status != 0 || outer.Phase != dialer.PhaseTCP || inner.Status != tt.inner {
				t.Errorf("got status %d in phase %s of the last proxy, %d of the first; want 0, tcp, %d", outer.Status, outer.Phase, inner.Status, tt.inner)
			}
			if strings.Contains(err.Error(), "allow port 6443") {
				t.Errorf("got advice for the wrong proxy: %v", err)
			}
			if n := asked.Load(); n > 1 {
				t.Errorf("the first proxy was asked for the last one %d times", n)
			}
		})
	}
}
