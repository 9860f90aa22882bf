package carrier_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
)

// upgraded is a listener for WebSockets that is served as a server does: TLS inside, and
// everything is sent back. outer is nil without an outer TLS.
func upgraded(t *testing.T, outer *tls.Config) net.Addr {
	l := carrier.ListenWebSocket(listen(t), outer)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				server, err := handshake(testContext(t), conn, pki.ServerTLS(), true)
				if err != nil {
					t.Error(err)
					return
				}
				defer server.Close()
				io.Copy(flushing{server}, server)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr()
}

// exchange checks that an upgraded server is at the other end of conn.
func exchange(t *testing.T, conn net.Conn, secret string) {
	t.Helper()
	agent, err := handshake(testContext(t), conn, pki.ClientTLS(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	flushing{agent}.Write([]byte(secret))
	got := make([]byte, len(secret))
	if _, err := io.ReadFull(agent, got); err != nil || string(got) != secret {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWebSocketThroughAProxy(t *testing.T) {
	asked := make(chan proxytest.Request, 1)
	proxy := &proxytest.HTTP{Username: "agent", Password: "pass", Log: func(r proxytest.Request) { asked <- r }}
	ps := proxytest.Serve(listen(t), proxy.Handle)
	t.Cleanup(ps.Close)
	through := &dialer.HTTPConnect{Addr: ps.Addr(), Auth: dialer.Basic(dialer.Password("agent", "pass"))}

	for _, scheme := range []string{"ws", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			var outer *tls.Config
			if scheme == "wss" {
				outer = pki.ServerTLS()
			}
			server := upgraded(t, outer).String()
			address := scheme + "://" + server + "/a?b=c"
			config := pki.ClientTLS()
			config.ServerName = ""
			conn, err := dialWebSocket(testContext(t), through.DialContext, address, config)
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, conn, "hello")
			if got := (<-asked).Target; got != server {
				t.Errorf("the proxy was asked for %q", got)
			}
		})
	}
}

// recorded keeps what is written to a connection.
type recorded struct {
	net.Conn
	mu  sync.Mutex // guards all
	all *bytes.Buffer
}

func (r *recorded) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.all.Write(p)
	r.mu.Unlock()
	return r.Conn.Write(p)
}

// A load balancer with a name and an authority of its own ends the outer TLS.
// It sees neither what is said nor with which certificates.
func TestWebSocketThroughALoadBalancer(t *testing.T) {
	target := &url.URL{Scheme: "http", Host: upgraded(t, nil).String()}
	seen := recorded{all: new(bytes.Buffer)}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		seen.Conn = conn
		return &seen, err
	}}
	defer transport.CloseIdleConnections()
	headers := make(chan http.Header, 1)
	balancer := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			headers <- r.In.Header
			r.SetURL(target)
		},
		Transport: transport,
	})
	outside := pki.NewCA("outside")
	balancer.TLS = &tls.Config{Certificates: []tls.Certificate{outside.Server("lb.test")}}
	balancer.Config.ErrorLog = log.New(io.Discard, "", 0)
	balancer.StartTLS()
	defer balancer.Close()

	toBalancer := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "lb.test:443" {
			t.Errorf("got a dial to %q, want lb.test:443", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, balancer.Listener.Addr().String())
	}
	conn, err := dialWebSocket(testContext(t), toBalancer, "wss://user:pass@lb.test/", &tls.Config{RootCAs: outside.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a secret that stays one"
	exchange(t, conn, secret)
	h := <-headers
	if got, want := h.Get("Authorization"), "Basic "+base64.StdEncoding.EncodeToString([]byte("user:pass")); got != want {
		t.Errorf("got the credentials %q, want %q", got, want)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.all.Len() == 0 || bytes.Contains(seen.all.Bytes(), []byte(secret)) {
		t.Errorf("the load balancer saw %d bytes, with the secret or none", seen.all.Len())
	}

	if _, err := dialWebSocket(testContext(t), toBalancer, "wss://lb.test/", pki.ClientTLS()); err == nil || !strings.Contains(err.Error(), "outer TLS") {
		t.Errorf("with another authority: got %v, want an error of the outer TLS", err)
	}
}

func TestWebSocketListener(t *testing.T) {
	ctx := testContext(t)
	l := carrier.ListenWebSocket(listen(t), nil)
	base := "ws://" + l.Addr().String()
	// One that nobody accepts is closed with the listener.
	waiting, err := dialWebSocket(ctx, nil, base+"/agents", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	// One that was accepted is not.
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	second, err := dialWebSocket(ctx, nil, base+"/agents", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	l.Close()
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that nobody accepted is open after Close")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: got %v, want net.ErrClosed", err)
	}
	accepted.Write([]byte("x"))
	if _, err := waiting.Read(make([]byte, 1)); err != nil {
		t.Errorf("an accepted connection ended with its listener: %v", err)
	}
}

// TestWebSocketRefused: who serves the listener is told why each connection did not come to Accept.
func TestWebSocketRefused(t *testing.T) {
	l := carrier.ListenWebSocket(listen(t), nil)
	defer l.Close()
	refused := make(chan error, 1)
	l.(interface {
		HandleRefused(func(context.Context, net.Addr, error))
	}).HandleRefused(func(_ context.Context, _ net.Addr, err error) { refused <- err })
	for request, want := range map[string]string{
		"":                                   "EOF",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":  "the answer is 426",
		"POST / HTTP/1.1\r\nHost: a\r\n\r\n": "the answer is 426",
		"\x16\x03\x01 no HTTP\r\n\r\n":       "the answer is 400",
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, request)
		conn.(*net.TCPConn).CloseWrite()
		if err := <-refused; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", request, err, want)
		}
		conn.Close()
	}
}
