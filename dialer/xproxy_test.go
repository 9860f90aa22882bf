package dialer_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/proxy"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// dialOnly is a proxy.Dialer that knows no context.
type dialOnly func(network, address string) (net.Conn, error)

func (f dialOnly) Dial(network, address string) (net.Conn, error) { return f(network, address) }

func TestFromProxy(t *testing.T) {
	echo := toEcho(t)
	plain := dialOnly(func(network, address string) (net.Conn, error) { return echo(t.Context(), network, address) })
	socks, err := proxy.SOCKS5("tcp", serve(t, listen(t), (&proxytest.SOCKS5{Dial: echo}).Handle), nil, dialer.ToProxy(dialer.Direct{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]proxy.Dialer{
		"Dial alone":  plain,
		"PerHost":     proxy.NewPerHost(plain, plain),
		"x/net SOCKS": socks,
		"ours":        dialer.ToProxy(dialer.Func(echo)),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := dialer.FromProxy(d).DialContext(testContext(t), "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exchangeAny(t, conn)
		})
	}
	t.Run("as a forward", func(t *testing.T) {
		d := &dialer.HTTPConnect{
			Addr:    scripted(t, false, "HTTP/1.1 200 OK\r\n\r\nearly"),
			Forward: dialer.FromProxy(dialOnly(net.Dial)),
		}
		conn, err := d.DialContext(testContext(t), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		exchange(t, conn, "early")
	})
}

// exchangeAny is exchange for a conn that may have no CloseWrite.
func exchangeAny(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.Write([]byte("hello"))
	got := make([]byte, 5)
	if n, err := conn.Read(got); err != nil || string(got[:n]) != "hello" {
		t.Errorf("got %q, %v", got[:n], err)
	}
}

func TestFromProxyError(t *testing.T) {
	broken := errors.New("broken")
	_, err := dialer.FromProxy(dialOnly(func(string, string) (net.Conn, error) { return nil, broken })).DialContext(testContext(t), "tcp", target)
	var e *dialer.Error
	if !errors.Is(err, broken) || !errors.As(err, &e) || e.Addr != target {
		t.Errorf("got %v, want an *Error with the cause", err)
	}
	ours := &dialer.SOCKS5{}
	_, want := ours.DialContext(testContext(t), "tcp", target)
	if _, err := dialer.FromProxy(dialer.ToProxy(ours)).DialContext(testContext(t), "tcp", target); err.Error() != want.Error() {
		t.Errorf("got %v, want %v", err, want)
	}
	if _, err := dialer.ToProxy(ours).Dial("tcp", target); err.Error() != want.Error() {
		t.Errorf("Dial: got %v, want %v", err, want)
	}
}

// A nil proxy.Dialer is an error of the dial, and no panic on a goroutine that nobody
// can recover.
func TestFromProxyNil(t *testing.T) {
	for name, d := range map[string]proxy.Dialer{"nil": nil, "nil function": dialOnly(nil), "nil pointer": (*net.Dialer)(nil)} {
		_, err := dialer.FromProxy(d).DialContext(testContext(t), "tcp", target)
		var e *dialer.Error
		if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig || e.Addr != target || !strings.Contains(err.Error(), "the proxy.Dialer is nil") {
			t.Errorf("%s: got %v, want an *Error of the configuration", name, err)
		}
	}
}

// A cancel ends the dial at once, although the dialer below does not hear of
// it, and the connection that comes late is closed.
func TestFromProxyCancel(t *testing.T) {
	for name, wrap := range map[string]func(proxy.Dialer) proxy.Dialer{
		"Dial alone": func(d proxy.Dialer) proxy.Dialer { return d },
		"PerHost":    func(d proxy.Dialer) proxy.Dialer { return proxy.NewPerHost(d, d) },
		"x/net SOCKS": func(d proxy.Dialer) proxy.Dialer {
			socks, err := proxy.SOCKS5("tcp", "192.0.2.1:1080", nil, dialer.ToProxy(dialer.FromProxy(d)))
			if err != nil {
				t.Fatal(err)
			}
			return socks
		},
	} {
		t.Run(name, func(t *testing.T) {
			dialing, arrive := make(chan struct{}), make(chan struct{})
			near, far := net.Pipe()
			d := dialer.FromProxy(wrap(dialOnly(func(string, string) (net.Conn, error) {
				close(dialing)
				<-arrive
				return near, nil
			})))
			ctx, cancel := context.WithCancel(testContext(t))
			go func() {
				<-dialing
				cancel()
			}()
			_, err := d.DialContext(ctx, "tcp", target)
			if !errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			close(arrive)
			if _, err := far.Read(make([]byte, 1)); err == nil {
				t.Error("the late connection was not closed")
			}
			// A context that has ended starts nothing.
			if _, err := d.DialContext(ctx, "tcp", target); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
		})
	}
}

// A connection that comes as the context ends is returned or closed. Without
// FromProxy's care the race detector speaks up here.
func TestFromProxyRace(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		near, far := net.Pipe()
		late := dialOnly(func(string, string) (net.Conn, error) {
			<-ctx.Done()
			return near, nil
		})
		go cancel()
		conn, err := dialer.FromProxy(proxy.NewPerHost(late, late)).DialContext(ctx, "tcp", target)
		if err == nil {
			conn.Close()
		} else if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		} else {
			near.Close() // the dial may not have begun
		}
		far.Close()
	}
}

// A dialer that is not there is an error of the dial, and no panic in the caller.
func TestToProxyNil(t *testing.T) {
	for _, d := range []dialer.Dialer{nil, (*dialer.HTTPConnect)(nil)} {
		if _, err := dialer.FromProxy(dialer.ToProxy(d)).DialContext(t.Context(), "tcp", target); err == nil {
			t.Error("no error of FromProxy")
		}
		conn, err := dialer.ToProxy(d).Dial("tcp", target)
		if e := (*dialer.Error)(nil); conn != nil || !errors.As(err, &e) || e.Phase != dialer.PhaseConfig {
			t.Errorf("got %v, %v, want an error of the configuration", conn, err)
		}
	}
}
