package dialer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// http2Proxy is an https proxy of net/http that prefers HTTP/2, and a dialer
// that may use it.
func http2Proxy(t testing.TB, p http.Handler) (*dialer.HTTPConnect, *httptest.Server) {
	t.Helper()
	forward := checked(t) // whose check comes after the Close
	server := httptest.NewUnstartedServer(p)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = discardLog
	server.StartTLS()
	t.Cleanup(server.Close)
	shared := &dialer.HTTP2{}
	t.Cleanup(func() { shared.Close() })
	return &dialer.HTTPConnect{
		Addr:      server.Listener.Addr().String(),
		TLSConfig: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs},
		HTTP2:     shared,
		Forward:   forward,
	}, server
}

func TestHTTP2Conns(t *testing.T) {
	d, _ := http2Proxy(t, &proxytest.HTTP{})
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(d, "") })
}

// counted counts the connections that are made.
func counted(d dialer.Dialer) (dialer.Dialer, *atomic.Int32) {
	n := new(atomic.Int32)
	return dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		n.Add(1)
		return d.DialContext(ctx, network, address)
	}), n
}

func TestHTTP2SharesOneConnection(t *testing.T) {
	d, _ := http2Proxy(t, &proxytest.HTTP{Dial: toEcho(t)})
	var made *atomic.Int32
	d.Forward, made = counted(d.Forward)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			conn, err := d.DialContext(testContext(t), "tcp", target)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if got := conn.RemoteAddr().String(); got != d.Addr {
				t.Errorf("RemoteAddr: got %s, want the proxy's, %s", got, d.Addr)
			}
			exchange(t, conn, "")
		})
	}
	wg.Wait()
	if got := made.Load(); got != 1 {
		t.Errorf("got %d connections, want 1", got)
	}
	// Another HTTPConnect is another client, with whatever certificate it has.
	other := &dialer.HTTPConnect{Addr: d.Addr, TLSConfig: d.TLSConfig, HTTP2: d.HTTP2, Forward: d.Forward}
	conn, err := other.DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := made.Load(); got != 2 {
		t.Errorf("got %d connections, want 2", got)
	}
}

// A proxy that chooses HTTP/1.1 is spoken to as it is without HTTP2, and its
// dials do not wait for each other.
func TestHTTP2NotChosen(t *testing.T) {
	ca := pki.NewCA("proxy")
	p := &proxytest.HTTP{Username: "u", Password: "p", Dial: toEcho(t)}
	addr := serve(t, tls.NewListener(listen(t), &tls.Config{
		Certificates: []tls.Certificate{ca.Server("127.0.0.1")},
		NextProtos:   []string{"http/1.1"},
	}), p.Handle)
	shared := &dialer.HTTP2{}
	forward, together := checked(t), make(chan struct{})
	var made atomic.Int32
	d := &dialer.HTTPConnect{Addr: addr, TLSConfig: &tls.Config{RootCAs: ca.Pool()}, HTTP2: shared}
	d.Forward = dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		switch n := made.Add(1); {
		case n == 4:
			close(together)
		case n > 1:
			select {
			case <-together:
			case <-ctx.Done():
			}
		}
		return forward.DialContext(ctx, network, address)
	})
	d.Auth = dialer.Basic(dialer.Password("u", "p"))
	dial := func() {
		conn, err := d.DialContext(testContext(t), "tcp", target)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, ok := conn.(*tls.Conn); !ok {
			t.Errorf("got a %T, want the raw connection", conn)
		}
		exchange(t, conn, "")
	}
	dial()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(dial)
	}
	wg.Wait()
	shared.Close()
	if _, err := d.DialContext(testContext(t), "tcp", target); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: got %v, want net.ErrClosed", err)
	}
}

func TestHTTP2BadInput(t *testing.T) {
	broken := errors.New("no header today")
	for name, header := range map[string]http.Header{"a pseudo header": {":protocol": {"websocket"}}, "Host": {"Host": {"x"}}, "an error": nil} {
		d := &dialer.HTTPConnect{Addr: "proxy:443", TLSConfig: &tls.Config{}, HTTP2: &dialer.HTTP2{}}
		d.Header = func(context.Context, string) (http.Header, error) {
			if header == nil {
				return nil, broken
			}
			return header, nil
		}
		d.Forward = dialer.Func(func(context.Context, string, string) (net.Conn, error) {
			t.Errorf("%s: the proxy was dialed", name)
			return nil, broken
		})
		_, err := d.DialContext(testContext(t), "tcp", target)
		var e *dialer.Error
		if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig || errors.Is(err, broken) != (header == nil) {
			t.Errorf("%s: got %v, want an *Error of the config phase", name, err)
		}
	}
}

func TestHTTP2RefusedCredentials(t *testing.T) {
	d, _ := http2Proxy(t, &proxytest.HTTP{Username: "u", Password: "p", Dial: toEcho(t)})
	d.Auth = dialer.Basic(dialer.Password("u", "canary"))
	_, err := d.DialContext(testContext(t), "tcp", target)
	var e *dialer.Error
	if !errors.As(err, &e) || e.Status != 407 || e.Phase != dialer.PhaseAuth || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v, want a 407 of the auth phase", err)
	}
	d.Auth = dialer.Basic(dialer.Password("u", "p"))
	conn, err := d.DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchange(t, conn, "")
}

// A dialer that is used no more leaves nothing behind.
func TestHTTP2Forgets(t *testing.T) {
	ca := pki.NewCA("proxy")
	addr := serve(t, tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}}), (&proxytest.HTTP{Dial: toEcho(t)}).Handle)
	shared := &dialer.HTTP2{}
	dial := func() {
		d := &dialer.HTTPConnect{Addr: addr, TLSConfig: &tls.Config{RootCAs: ca.Pool()}, HTTP2: shared}
		conn, err := d.DialContext(testContext(t), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	for range 20 {
		dial()
	}
	runtime.GC()
	dial()
	if got := shared.Proxies(); got > 10 {
		t.Errorf("got %d dialers remembered after 21, of which none is left", got)
	}
}

// Streams carry much at a time, each its own, and one that nobody reads does
// not hold up the others.
func TestHTTP2Parallel(t *testing.T) {
	d, _ := http2Proxy(t, &proxytest.HTTP{Dial: toEcho(t)})
	stalled := mustDial(t, d)
	defer stalled.Close()
	stalled.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := stalled.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stream that nobody reads: got %v, want the deadline", err)
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			conn, err := d.DialContext(testContext(t), "tcp", target)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			want := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6}, 300_000)
			wg.Go(func() {
				conn.Write(want)
				conn.(interface{ CloseWrite() error }).CloseWrite()
			})
			if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
				t.Errorf("stream %d: got %d bytes, %v; want %d", i, len(got), err, len(want))
			}
		})
	}
	wg.Wait()
}
