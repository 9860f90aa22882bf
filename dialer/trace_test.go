package dialer_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

func TestTrace(t *testing.T) {
	ca := pki.NewCA("proxy")
	tlsAddr := serve(t, tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}}),
		(&proxytest.HTTP{Username: "u", Password: "p", Dial: toEcho(t)}).Handle)
	socksAddr := serve(t, listen(t), (&proxytest.SOCKS5{Username: "u", Password: "p", Dial: toEcho(t)}).Handle)
	https := func(password string) dialer.Dialer {
		return &dialer.HTTPConnect{Addr: tlsAddr, TLSConfig: &tls.Config{RootCAs: ca.Pool()}, Auth: dialer.Basic(dialer.Password("u", password))}
	}
	port := tlsAddr[strings.LastIndex(tlsAddr, ":"):]
	for _, tt := range []struct {
		name    string
		dialer  dialer.Dialer
		address string
		want    []string
	}{
		{"https", https("p"), target, []string{
			"tcp PROXY", "tls PROXY via https://PROXY", "connect 192.0.2.10:6443 via https://PROXY",
		}},
		{"https, refused", https("x"), target, []string{
			"tcp PROXY", "tls PROXY via https://PROXY", "connect 192.0.2.10:6443 via https://PROXY: failed",
		}},
		{"socks5", &dialer.SOCKS5{Addr: socksAddr, Credentials: dialer.Password("u", "p")}, target, []string{
			"tcp PROXY", "connect PROXY via socks5://PROXY", "auth PROXY via socks5://PROXY", "connect 192.0.2.10:6443 via socks5://PROXY",
		}},
		{"direct, by name", dialer.Direct{}, "localhost" + port, []string{"dns localhost" + port, "tcp localhost" + port}},
		{"direct, no such name", dialer.Direct{}, "nowhere.invalid:1", []string{"dns nowhere.invalid:1: failed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			var started, got []string
			ctx := dialer.WithTrace(testContext(t), &dialer.Trace{
				Start: func(e dialer.Event) {
					mu.Lock()
					defer mu.Unlock()
					started = append(started, fmt.Sprint(e.Phase))
				},
				Done: func(e dialer.Event) {
					mu.Lock()
					defer mu.Unlock()
					text := fmt.Sprintf("%s %s", e.Phase, e.Addr)
					if e.Proxy != "" {
						text += " via " + e.Proxy
					}
					if e.Err != nil {
						text += ": failed"
					}
					got = append(got, text)
					if e.Began.IsZero() || e.Duration <= 0 {
						t.Errorf("%s: began %v, took %v", text, e.Began, e.Duration)
					}
					if (e.TLS != nil) != (e.Phase == dialer.PhaseTLS) {
						t.Errorf("%s: TLS state %v", text, e.TLS)
					}
				},
			})
			conn, err := tt.dialer.DialContext(ctx, "tcp", tt.address)
			if err == nil {
				conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range got {
				got[i] = strings.NewReplacer(tlsAddr, "PROXY", socksAddr, "PROXY").Replace(got[i])
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(started) != len(got) {
				t.Errorf("%d phases started, %d done", len(started), len(got))
			}
		})
	}
	// Hooks may be nil.
	conn, err := https("p").DialContext(dialer.WithTrace(testContext(t), &dialer.Trace{}), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
