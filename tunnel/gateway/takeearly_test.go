package gateway_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// What the client has sent already reaches the target once, whether Dial or the
// Gateway writes it; and Dial gets only what may come twice.
func TestTakeEarly(t *testing.T) {
	const handshake = "\x16\x03\x01\x00\x05hello"
	short, long := records(message(sniOf("api.example.com")), 5000), records(message(extension(0x2a2a, strings.Repeat("x", 20<<10)), sniOf("api.example.com")), 5000)
	connect := func(g *gateway.Gateway) func(context.Context, net.Listener) error { return g.ServeConnect }
	sni := func(g *gateway.Gateway) func(context.Context, net.Listener) error { return g.ServeSNI }
	socks5 := func(g *gateway.Gateway) func(context.Context, net.Listener) error { return g.ServeSOCKS5 }
	const connectAsks, connectAnswer = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"
	const socks5Asks, socks5Answer = "\x05\x01\x00\x05\x01\x00\x03\x01a\x01\xbb", "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	for _, w := range []struct {
		name         string
		door         func(*gateway.Gateway) func(context.Context, net.Listener) error
		asks, answer string
		early        string
		takes        bool
	}{
		{"SNI", sni, "", "", short, true},
		{"SNI, and more", sni, "", "", short + "x", true},
		{"SNI, long", sni, "", "", long, false},
		{"CONNECT", connect, connectAsks, connectAnswer, handshake, true},
		{"CONNECT, no TLS", connect, connectAsks, connectAnswer, "POST / HTTP/1.1\r\n\r\n", false},
		{"CONNECT, too little", connect, connectAsks, connectAnswer, handshake[:5], false},
		{"CONNECT, nothing", connect, connectAsks, connectAnswer, "", false},
		{"SOCKS5", socks5, socks5Asks, socks5Answer, handshake, true},
		{"SOCKS5, no TLS", socks5, socks5Asks, socks5Answer, "SSH-2.0-x\r\n", false},
	} {
		t.Run(w.name, func(t *testing.T) {
			near, far := pair(t)
			taken := make(chan string, 1)
			ended := make(chan gateway.Ended, 1)
			g := &gateway.Gateway{Authenticate: gateway.Anyone}
			if w.asks == "" {
				g.Route = gateway.ByTable(tableOf())
			}
			g.Hooks.Ended = func(r gateway.Request, e gateway.Ended) {
				if r.TakeEarly() != nil {
					t.Error("Hooks can take the bytes")
				}
				ended <- e
			}
			g.Dial = func(_ context.Context, r gateway.Request) (net.Conn, error) {
				early := r.TakeEarly()
				near.Write(early)
				if r.TakeEarly() != nil {
					t.Error("the bytes can be taken twice")
				}
				taken <- string(early)
				return near, nil
			}
			addr, end := open(t, g, w.door(g))
			defer end()
			client := call(t, addr)
			send(t, client, w.asks+w.early)
			expect(t, client, []byte(w.answer))
			send(t, client, "more")
			client.CloseWrite()
			want := w.early + "more"
			if got, err := io.ReadAll(far); err != nil || string(got) != want {
				t.Errorf("the target got %d bytes, %v, want %d", len(got), err, len(want))
			}
			far.Close()
			if e := <-ended; e.In != int64(len(want)) {
				t.Errorf("got %d bytes from the client, want %d", e.In, len(want))
			}
			if first := <-taken; w.takes != (first != "") || !strings.HasPrefix(want, first) {
				t.Errorf("Dial got %q", first)
			}
		})
	}
}

// A client may send all that it has to say, and its end, with its request: it has not hung up.
func TestEndsEarly(t *testing.T) {
	for name, door := range map[string]struct {
		serve func(*gateway.Gateway) func(context.Context, net.Listener) error
		asks  string
	}{
		"CONNECT": {func(g *gateway.Gateway) func(context.Context, net.Listener) error { return g.ServeConnect }, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"},
		"SOCKS5":  {func(g *gateway.Gateway) func(context.Context, net.Listener) error { return g.ServeSOCKS5 }, "\x05\x01\x00\x05\x01\x00\x03\x01a\x01\xbb"},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			sawEnd := make(chan struct{})
			g := &gateway.Gateway{Authenticate: gateway.Anyone, Dial: func(context.Context, gateway.Request) (net.Conn, error) {
				<-sawEnd
				return near, nil
			}}
			serve := door.serve(g)
			addr, end := open(t, g, func(ctx context.Context, l net.Listener) error {
				return serve(ctx, endListener{l, sync.OnceFunc(func() { close(sawEnd) })})
			})
			defer end()
			client := call(t, addr)
			send(t, client, door.asks+"x")
			client.CloseWrite()
			if got, err := io.ReadAll(far); err != nil || string(got) != "x" {
				t.Errorf("the target got %q, %v, want all", got, err)
			}
			far.Close()
		})
	}
}

// endListener calls end when the end of a connection was read.
type endListener struct {
	net.Listener
	end func()
}

func (l endListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &endConn{conn, l.end}, err
}

type endConn struct {
	net.Conn
	end func()
}

func (c *endConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		c.end()
	}
	return n, err
}

func (c *endConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }
