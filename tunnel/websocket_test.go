package tunnel_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
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
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// upgraded serves the handler's connections as a server does: TLS inside, and
// everything is sent back.
func upgraded(t *testing.T) http.Handler {
	return tunnel.WebSocketHandler(func(conn net.Conn) {
		server, err := tunnel.Secure(testContext(t), conn, serverTLS(), true)
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		io.Copy(flushing{server}, server)
	})
}

// exchange checks that an upgraded server is at the other end of conn.
func exchange(t *testing.T, conn net.Conn, secret string) {
	t.Helper()
	agent, err := tunnel.Secure(testContext(t), conn, clientTLS(), false)
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
			server := httptest.NewUnstartedServer(upgraded(t))
			if server.TLS = serverTLS().Clone(); scheme == "wss" {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			address := scheme + "://" + server.Listener.Addr().String() + "/a?b=c"
			config := clientTLS()
			config.ServerName = ""
			conn, err := tunnel.WebSocket{TLS: config}.Dial(testContext(t), through.DialContext, address)
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, conn, "hello")
			if got := (<-asked).Target; got != server.Listener.Addr().String() {
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
	backend := httptest.NewServer(upgraded(t))
	defer backend.Close()
	target, _ := url.Parse(backend.URL)
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

	w := tunnel.WebSocket{
		TLS:    &tls.Config{RootCAs: outside.Pool()},
		Header: http.Header{"X-Tenant": {"blue"}},
	}
	toBalancer := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "lb.test:443" {
			t.Errorf("got a dial to %q, want lb.test:443", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, balancer.Listener.Addr().String())
	}
	conn, err := w.Dial(testContext(t), toBalancer, "wss://user:pass@lb.test/")
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a secret that stays one"
	exchange(t, conn, secret)
	h := <-headers
	if got := h.Get("X-Tenant"); got != "blue" {
		t.Errorf("got the header %q, want blue", got)
	}
	if got, want := h.Get("Authorization"), "Basic "+base64.StdEncoding.EncodeToString([]byte("user:pass")); got != want {
		t.Errorf("got the credentials %q, want %q", got, want)
	}
	if len(w.Header) != 1 {
		t.Errorf("the caller's header was changed: %v", w.Header)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.all.Len() == 0 || bytes.Contains(seen.all.Bytes(), []byte(secret)) {
		t.Errorf("the load balancer saw %d bytes, with the secret or none", seen.all.Len())
	}

	other := tunnel.WebSocket{TLS: clientTLS()}
	if _, err := other.Dial(testContext(t), toBalancer, "wss://lb.test/"); err == nil || !strings.Contains(err.Error(), "outer TLS") {
		t.Errorf("with another authority: got %v, want an error of the outer TLS", err)
	}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"

func TestWebSocketAnswers(t *testing.T) {
	tests := []struct {
		name   string
		answer string // KEY is what the request's key makes
		end    bool   // the server then closes
		want   string // of the error; empty: none
		after  time.Duration
	}{
		{"upgrade", switching + "Sec-WebSocket-Accept: KEY\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n", false, "", 0},
		{"refusal", "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno\tagents", false, `403 Forbidden: "no agents"`, 0},
		{"long refusal", "HTTP/1.1 502 Bad Gateway\r\n\r\n" + strings.Repeat("x", 1000), false, `"` + strings.Repeat("x", 200) + `"`, 0},
		{"refusal whose body does not come", "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno", false, `403 Forbidden: "no"`, time.Second},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", false, "302 Found", 0},
		{"success without an upgrade", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false, `200 OK: "hi"`, 0},
		{"upgrade to something else", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", false, "no upgrade to WebSocket", 0},
		{"answer to another", switching + "Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n", false, "another request", 0},
		{"no subprotocol", switching + "Sec-WebSocket-Accept: KEY\r\n\r\n", false, "subprotocol", 0},
		{"extension", switching + "Sec-WebSocket-Accept: KEY\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n", false, "extensions", 0},
		{"cut", "HTTP/1.1 101 Swi", true, "unexpected EOF", 0},
		{"nothing", "", true, "unexpected EOF", 0},
		{"no answer", "", false, "deadline exceeded", 5 * time.Second},
		{"no HTTP", "SSH-2.0-OpenSSH\r\n", true, "reading the answer", 0},
		{"a header without an end", "HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X: y\r\n", 1<<20), false, "larger than", 0},
		{"a line without an end", "HTTP/1.1 101 " + strings.Repeat("x", 1<<20), false, "larger than", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				var wg sync.WaitGroup
				wg.Go(func() {
					req, err := http.ReadRequest(bufio.NewReader(b))
					if err != nil {
						t.Error(err)
						return
					}
					answer := strings.Replace(tt.answer, "KEY", accept(req.Header.Get("Sec-WebSocket-Key")), 1)
					io.WriteString(b, answer)
					if tt.end {
						b.Close()
					}
					io.Copy(io.Discard, b)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				dial := func(context.Context, string, string) (net.Conn, error) { return a, nil }
				conn, err := tunnel.WebSocket{}.Dial(ctx, dial, "ws://user:hidden@server.test")
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				if err != nil && (strings.Contains(err.Error(), "hidden") || strings.ContainsAny(err.Error(), "\n\t")) {
					t.Errorf("the error is not fit for a log: %q", err)
				}
				if got := time.Since(began); got != tt.after {
					t.Errorf("it took %v, want %v", got, tt.after)
				}
				if err == nil {
					conn.Close()
				} else if err := a.SetDeadline(time.Time{}); !errors.Is(err, io.ErrClosedPipe) {
					t.Error("the connection was left open")
				}
				wg.Wait()
			})
		})
	}
}

// The first bytes of a server may come with its answer.
func TestWebSocketKeepsEarlyBytes(t *testing.T) {
	a, b := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		req, err := http.ReadRequest(bufio.NewReader(b))
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(b, switching+"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n\x82\x05hello",
			accept(req.Header.Get("Sec-WebSocket-Key")))
		io.Copy(io.Discard, b)
	})
	dial := func(context.Context, string, string) (net.Conn, error) { return a, nil }
	conn, err := tunnel.WebSocket{}.Dial(testContext(t), dial, "ws://server.test")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	conn.Close()
	wg.Wait()
}

func TestWebSocketHandlerRefuses(t *testing.T) {
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Protocol": {"other, causeway.v1"}}
	but := func(name, value string) http.Header {
		h := upgrade.Clone()
		h.Set(name, value)
		return h
	}
	tests := []struct {
		name, method string
		header       http.Header
		want         int
	}{
		{"a browser", "GET", nil, 426},
		{"no connection header", "GET", but("Connection", "close"), 426},
		{"another upgrade", "GET", but("Upgrade", "h2c"), 426},
		{"another version", "GET", but("Sec-WebSocket-Version", "8"), 426},
		{"another method", "POST", upgrade, 400},
		{"no key", "GET", but("Sec-WebSocket-Key", ""), 400},
		{"a short key", "GET", but("Sec-WebSocket-Key", "AAAA"), 400},
		{"another subprotocol", "GET", but("Sec-WebSocket-Protocol", "chat"), 400},
		{"right, but no connection to take", "GET", upgrade, 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(tt.method, "/", nil)
			r.Header = tt.header
			tunnel.WebSocketHandler(func(net.Conn) { t.Error("a connection was served") }).ServeHTTP(w, r)
			if w.Code != tt.want || w.Body.Len() < 10 {
				t.Errorf("got %d %q, want %d and a text", w.Code, w.Body, tt.want)
			}
			if got := w.Header().Get("Upgrade"); tt.want == 426 && got != "websocket" {
				t.Errorf("got Upgrade: %q, want websocket", got)
			}
		})
	}
}

func TestWebSocketListener(t *testing.T) {
	ctx := testContext(t)
	l, err := tunnel.WebSocket{}.Listen(ctx, "ws://127.0.0.1:0/agents")
	if err != nil {
		t.Fatal(err)
	}
	base := "ws://" + l.Addr().String()
	if _, err := (tunnel.WebSocket{}).Dial(ctx, nil, base+"/other"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("another path: got %v, want 404", err)
	}
	// One that nobody accepts is closed with the listener.
	waiting, err := tunnel.WebSocket{}.Dial(ctx, nil, base+"/agents")
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
	second, err := tunnel.WebSocket{}.Dial(ctx, nil, base+"/agents")
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
