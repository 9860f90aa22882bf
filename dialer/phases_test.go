package dialer_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// The context ends a dial in whatever phase it hangs, and the error names both.
func TestContextInEveryPhase(t *testing.T) {
	// stuck ends on its own only after the test.
	stuck := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	const proxy = "proxy.example.com"
	hangs := []struct {
		name    string
		phase   dialer.Phase
		host    string // the proxy's: an address needs no time to be looked up
		forward dialer.Dialer
		tls     *tls.Config
	}{
		{"dns", dialer.PhaseDNS, proxy, dialer.Direct{Dialer: &net.Dialer{Resolver: &net.Resolver{
			PreferGo: true,
			Dial:     func(ctx context.Context, _, _ string) (net.Conn, error) { return nil, stuck(ctx) },
		}}}, nil},
		{"tcp", dialer.PhaseTCP, "127.0.0.1", dialer.Direct{Dialer: &net.Dialer{
			ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error { return stuck(ctx) },
		}}, nil},
		{"tls, in a write", dialer.PhaseTLS, proxy, deaf(t), &tls.Config{}},
		{"tls, in a read", dialer.PhaseTLS, proxy, mute(t), &tls.Config{}},
		{"connect, in a write", dialer.PhaseConnect, proxy, deaf(t), nil},
		{"connect, in a read", dialer.PhaseConnect, proxy, mute(t), nil},
		{"a forward without a context", dialer.PhaseTCP, proxy, dialer.FromProxy(dialOnly(func(string, string) (net.Conn, error) {
			<-t.Context().Done()
			return nil, net.ErrClosed
		})), nil},
	}
	for _, tt := range hangs {
		dialers := []dialer.Dialer{&dialer.HTTPConnect{Addr: tt.host + ":3128", Forward: tt.forward, TLSConfig: tt.tls, Timeout: -1}}
		if tt.tls == nil {
			dialers = append(dialers, &dialer.SOCKS5{Addr: tt.host + ":1080", Forward: tt.forward, Timeout: -1})
		} else {
			dialers = append(dialers, &dialer.HTTPConnect{Addr: tt.host + ":443", Forward: tt.forward, TLSConfig: tt.tls, HTTP2: &dialer.HTTP2{}})
		}
		for _, d := range dialers {
			t.Run(tt.name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(testContext(t))
				time.AfterFunc(5*time.Millisecond, cancel)
				_, err := d.DialContext(ctx, "tcp", target)
				var e *dialer.Error
				if !errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &e) || e.Phase != tt.phase {
					t.Errorf("cancel of a %T: got %v, want context.Canceled in phase %s", d, err, tt.phase)
				}
				ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				checkTimeout(t, d, ctx)
			})
		}
	}
}

// The error of a dial that took too long says who ended it, and after how long.
func TestWhoEndedTheDial(t *testing.T) {
	const limit = 20 * time.Millisecond
	why := errors.New("why")
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		limit   func(context.Context) (context.Context, context.CancelFunc)
		want    string // in the text once
		not     string // in the text
	}{
		{"Timeout", limit, context.WithCancel, "connect: context deadline exceeded: the dialer's Timeout of 20ms is over", "caller"},
		{"the caller's deadline", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, limit)
		},
			"(the caller's deadline, after 20ms)", "Timeout"},
		{"both, the caller's first", time.Minute, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, limit)
		},
			"(the caller's deadline, after 20ms)", "Timeout"},
		{"the caller's, who says why", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, limit, why)
		}, "connect: context deadline exceeded: why", "caller"},
		{"the caller cancels", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(limit, cancel)
			return ctx, cancel
		}, "connect: context canceled", "("},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hop := &dialer.HTTPConnect{Addr: "hop:80", Forward: mute(t), Timeout: tt.timeout}
				for _, d := range []dialer.Dialer{hop,
					&dialer.SOCKS5{Addr: "proxy:1080", Forward: mute(t), Timeout: tt.timeout},
					&dialer.HTTPConnect{Addr: "proxy:80", Forward: hop, Timeout: 2 * tt.timeout},
				} {
					ctx, cancel := tt.limit(t.Context())
					defer cancel()
					_, err := d.DialContext(ctx, "tcp", target)
					if text := err.Error(); strings.Count(text, tt.want) != 1 || strings.Contains(text, tt.not) {
						t.Errorf("got %s, want once %q, and no %q", text, tt.want, tt.not)
					}
				}
			})
		})
	}
}

// A dial that waits for the HTTP/2 connection of another one says which phase that is in.
func TestHTTP2WaitPhase(t *testing.T) {
	proxy := func(forward dialer.Dialer) *dialer.HTTPConnect {
		return &dialer.HTTPConnect{Addr: "proxy.example.com:443", TLSConfig: &tls.Config{}, HTTP2: &dialer.HTTP2{}, Forward: forward}
	}
	silent := rawProxy(t, "h2", func(p *rawHTTP2) { io.Copy(io.Discard, p.conn) })
	silent.HTTP2.PingInterval = -1
	for _, tt := range []struct {
		name  string
		phase dialer.Phase
		begun dialer.Phase // of the first dial
		d     *dialer.HTTPConnect
	}{
		{"dns", dialer.PhaseDNS, dialer.PhaseDNS, proxy(dialer.Direct{Dialer: &net.Dialer{Resolver: &net.Resolver{
			PreferGo: true,
			Dial:     func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		}}})},
		{"tcp", dialer.PhaseTCP, dialer.PhaseTCP, &dialer.HTTPConnect{
			Addr: "127.0.0.1:443", TLSConfig: &tls.Config{}, HTTP2: &dialer.HTTP2{},
			Forward: dialer.Direct{Dialer: &net.Dialer{ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error { <-ctx.Done(); return ctx.Err() }}},
		}},
		{"a hop before", dialer.PhaseTCP, dialer.PhaseConnect, proxy(&dialer.HTTPConnect{Addr: "hop.example.com:80", Forward: mute(t)})},
		{"tls", dialer.PhaseTLS, dialer.PhaseTLS, proxy(mute(t))},
		{"connect", dialer.PhaseConnect, dialer.PhaseConnect, silent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			begun, ended := make(chan bool, 10), make(chan bool)
			go func() {
				defer close(ended)
				tt.d.DialContext(dialer.WithTrace(ctx, &dialer.Trace{Start: func(e dialer.Event) {
					if e.Phase == tt.begun {
						begun <- true
					}
				}}), "tcp", target)
			}()
			<-begun
			late, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer stop()
			var events []dialer.Event
			_, err := tt.d.DialContext(dialer.WithTrace(late, &dialer.Trace{Done: func(e dialer.Event) { events = append(events, e) }}), "tcp", target)
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != tt.phase || !e.Timeout() {
				t.Errorf("got %v, want a timeout in phase %s", err, tt.phase)
			}
			if len(events) != 1 || events[0].Phase != tt.phase || events[0].Err != err || events[0].Duration < time.Millisecond {
				t.Errorf("got events %v, want one of this wait", events)
			}
			cancel()
			<-ended
		})
	}
}

// lateContext is one of which the deadline has passed, and whose timer has not
// had its turn.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// A socket's deadline may pass a moment before its context ends.
func TestSocketDeadlineFirst(t *testing.T) {
	d := &dialer.HTTPConnect{Addr: "127.0.0.1:3128", Timeout: -1, Forward: dialer.Func(func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	})}
	_, err := d.DialContext(lateContext{t.Context()}, "tcp", target)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded", err)
	}
}

// deaf makes connections whose other side does not read, mute ones whose
// other side says nothing.
func deaf(t *testing.T) dialer.Dialer {
	return dialer.Func(func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		return near, nil
	})
}

func mute(t *testing.T) dialer.Dialer {
	return dialer.Func(func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go io.Copy(io.Discard, far)
		t.Cleanup(func() { far.Close() })
		return near, nil
	})
}

// What is left of a dial is a connection without a deadline.
func TestNoDeadlineLeft(t *testing.T) {
	ca := pki.NewCA("proxy")
	echo := toEcho(t)
	secure := serve(t, tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}}), (&proxytest.HTTP{Dial: echo}).Handle)
	h2, _ := http2Proxy(t, &proxytest.HTTP{Dial: echo})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var conns []net.Conn
	for _, d := range []dialer.Dialer{
		&dialer.HTTPConnect{Addr: serve(t, listen(t), (&proxytest.HTTP{Dial: echo}).Handle)},
		&dialer.HTTPConnect{Addr: secure, TLSConfig: &tls.Config{RootCAs: ca.Pool()}},
		&dialer.SOCKS5{Addr: serve(t, listen(t), (&proxytest.SOCKS5{Dial: echo}).Handle)},
		h2,
	} {
		conn, err := d.DialContext(ctx, "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	<-ctx.Done() // the deadline of the dials, not of their connections
	for _, conn := range conns {
		exchange(t, conn, "")
	}
}

// The proxy is reached by its own name: what it presents is held against that,
// brackets and zone left out.
func TestHTTPSProxyName(t *testing.T) {
	for _, tt := range []struct{ url, name, sni string }{
		{"https://proxy.example.com", "proxy.example.com", "proxy.example.com"},
		{"https://[2001:db8::1]", "2001:db8::1", ""},
		{"https://[fe80::1%25eth0]:443", "fe80::1", ""},
	} {
		t.Run(tt.url, func(t *testing.T) {
			ca := pki.NewCA("proxy")
			sni := make(chan string, 1)
			addr := serve(t, tls.NewListener(listen(t), &tls.Config{
				Certificates: []tls.Certificate{ca.Server(tt.name)},
				GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
					sni <- hello.ServerName
					return nil, nil
				},
			}), (&proxytest.HTTP{Dial: toEcho(t)}).Handle)
			u, err := dialer.ParseURL(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			asked := ""
			d, err := dialer.FromURL(u, &dialer.Options{
				TLSConfig: &tls.Config{RootCAs: ca.Pool()},
				Forward: dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
					asked = address
					return dialer.Direct{}.DialContext(ctx, network, addr)
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			conn, err := d.DialContext(testContext(t), "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := <-sni; got != tt.sni {
				t.Errorf("SNI: got %q, want %q", got, tt.sni)
			}
			if _, port, err := net.SplitHostPort(asked); err != nil || port != "443" {
				t.Errorf("Forward was asked for %q, want port 443", asked)
			}
			exchange(t, conn, "")
		})
	}
}

// phases records the phases of dials.
func phases(ctx context.Context, got *[]dialer.Phase) context.Context {
	return dialer.WithTrace(ctx, &dialer.Trace{Done: func(e dialer.Event) { *got = append(*got, e.Phase) }})
}

func TestTraceAuth(t *testing.T) {
	addr := serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		for _, reply := range []string{"407 No\r\nContent-Length: 0", "407 No\r\nContent-Length: 0", "200 OK"} {
			readHead(br)
			io.WriteString(conn, "HTTP/1.1 "+reply+"\r\n\r\n")
		}
	})
	var got []dialer.Phase
	d := &dialer.HTTPConnect{Addr: addr, Auth: &rounds{}}
	conn, err := d.DialContext(phases(testContext(t), &got), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	want := []dialer.Phase{dialer.PhaseTCP, dialer.PhaseConnect, dialer.PhaseAuth, dialer.PhaseAuth}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The first dial makes the connection, the second only asks for a stream.
func TestTraceHTTP2(t *testing.T) {
	d, _ := http2Proxy(t, &proxytest.HTTP{Dial: toEcho(t)})
	d.Forward = nil
	for _, want := range [][]dialer.Phase{{dialer.PhaseTCP, dialer.PhaseTLS, dialer.PhaseConnect}, {dialer.PhaseConnect}} {
		var got []dialer.Phase
		conn, err := d.DialContext(phases(testContext(t), &got), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}
