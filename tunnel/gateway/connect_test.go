package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// password lets one user in.
func password(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
	if c.User != "ann" || c.Password != "secret" {
		return gateway.Identity{}, gateway.ErrCredentials
	}
	return gateway.Identity{Name: c.User}, nil
}

// What a client of HTTP/1 says, and all that it is answered.
func TestConnectRaw(t *testing.T) {
	const auth = "Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n" // ann:secret
	tests := []struct {
		name string
		say  string
		err  error // of Dial
		want string
		also []string
	}{
		{name: "early bytes", say: "CONNECT a:1 HTTP/1.1\r\nHost: b\r\n" + auth + "\r\nhello", want: "HTTP/1.1 200 OK\r\n\r\nhello"},
		{name: "HTTP/1.0, LF", say: "\n\nCONNECT a:1 HTTP/1.0\n" + strings.Replace(auth, "\r", "", 1) + "\nhello", want: "HTTP/1.1 200 OK\r\n\r\nhello"},
		{name: "IPv6", say: "CONNECT [::1]:1 HTTP/1.1\r\n" + auth + "\r\nhello", want: "HTTP/1.1 200 OK\r\n\r\nhello"},
		{name: "no credentials", say: "CONNECT a:1 HTTP/1.0\r\n\r\n", want: "HTTP/1.1 407 Proxy Authentication Required: ", also: []string{"Proxy-Authenticate: Basic realm="}},
		{name: "no credentials, HTTP/1.1", say: "CONNECT a:1 HTTP/1.1\r\n\r\n", want: "HTTP/1.1 407 Proxy Authentication Required: "},
		{name: "early bytes, no credentials", say: "CONNECT a:1 HTTP/1.1\r\n\r\nCONNECT b:1 HTTP/1.1\r\n" + auth + "\r\n", want: "HTTP/1.1 407 ", also: []string{"Connection: close\r\n"}},
		{name: "credentials twice", say: "CONNECT a:1 HTTP/1.1\r\n" + auth + auth + "\r\n", want: "HTTP/1.1 400 Bad Request: the Proxy-Authorization is malformed\r\n"},
		{name: "Host twice", say: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nhost: b:1\r\n" + auth + "\r\n", want: "HTTP/1.1 400 Bad Request: there is more than one Host\r\n"},
		{name: "GET", say: "GET http://a/ HTTP/1.1\r\n\r\n", want: "HTTP/1.1 405 Method Not Allowed: ", also: []string{"Allow: CONNECT\r\n", "curl --proxytunnel"}},
		{name: "HTTP/3", say: "CONNECT a:1 HTTP/3.0\r\n\r\n", want: "HTTP/1.1 505 "},
		{name: "no port", say: "CONNECT a HTTP/1.1\r\n" + auth + "\r\n", want: "HTTP/1.1 400 Bad Request: the target of CONNECT is not host:port\r\n"},
		{name: "body", say: "CONNECT a:1 HTTP/1.1\r\nContent-Length: 3\r\n" + auth + "\r\nabc", want: "HTTP/1.1 400 "},
		{name: "TLS", say: "\x16\x03\x01", want: "HTTP/1.1 400 Bad Request: this door is plain: use an http proxy URL\r\n"},
		{name: "SOCKS", say: "\x05\x01\x00", want: "HTTP/1.1 400 Bad Request: this door is an HTTP proxy"},
		{name: "large", say: "CONNECT a:1 HTTP/1.1\r\nX: " + strings.Repeat("x", 17<<10), want: "HTTP/1.1 431 Request Header Fields Too Large: "},
		{name: "refused", err: syscall.ECONNREFUSED, say: "CONNECT a:1 HTTP/1.1\r\n" + auth + "\r\n", want: "HTTP/1.1 502 Bad Gateway: connection refused\r\n",
			also: []string{"Proxy-Status: causeway; error=connection_refused; details=\"connection refused\"\r\n", "\r\n\r\nBad Gateway: connection refused\n"}},
		{name: "forbidden", err: syscall.EACCES, say: "CONNECT a:1 HTTP/1.1\r\n" + auth + "\r\n", want: "HTTP/1.1 403 Forbidden: permission denied\r\n"},
		{name: "timeout", err: context.DeadlineExceeded, say: "CONNECT a:1 HTTP/1.1\r\n" + auth + "\r\n", want: "HTTP/1.1 504 Gateway Timeout: "},
		{name: "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := &gateway.Gateway{Authenticate: password, Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
				if tt.err != nil {
					return nil, tt.err
				}
				return dialTarget(t, ctx, r)
			}}
			conn := serveTCP(t, g)
			if _, err := io.WriteString(conn, tt.say); err != nil {
				t.Fatal(err)
			}
			if tt.err == nil { // while a target is dialed it would be a hang-up
				conn.CloseWrite()
			}
			b, err := io.ReadAll(conn)
			if err != nil {
				t.Fatalf("got %q, %v", b, err)
			}
			if got := string(b); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got %q, want %q first", got, tt.want)
			}
			for _, want := range tt.also {
				if !strings.Contains(string(b), want) {
					t.Errorf("got %q, want %q in it", b, want)
				}
			}
		})
	}
}

// dialTarget is over TCP, an echo that ends when it is told all.
func dialTarget(t *testing.T, ctx context.Context, _ gateway.Request) (net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return nil, err
	}
	go func() {
		defer l.Close()
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			io.Copy(conn, conn)
		}
	}()
	return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
}

// serveTCP returns a client of the CONNECT door.
func serveTCP(t *testing.T, g *gateway.Gateway) *net.TCPConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.ServeConnect(context.Background(), l) }()
	t.Cleanup(func() {
		g.Close()
		if err := <-done; err != nil {
			t.Errorf("got %v from ServeConnect", err)
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn.(*net.TCPConn)
}

// Retry-After has the time that the error knows, in whole seconds.
func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{limited{syscall.EACCES}, "2"}, // 1.2 s
		{unavailable{syscall.EACCES}, "1"},
	} {
		e := &gateway.Error{Phase: gateway.PhaseDial, Err: tt.err}
		if got := string(gateway.Answer(e)); !strings.Contains(got, "\r\nRetry-After: "+tt.want+"\r\n") {
			t.Errorf("got %q, want %s seconds", got, tt.want)
		}
	}
}

// Ended has the error of the connection that failed, in its own words.
func TestEndedSaysWhy(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	ended := make(chan gateway.Ended, 1)
	client := serveTCP(t, &gateway.Gateway{
		Authenticate: gateway.Anyone,
		Dial: func(ctx context.Context, _ gateway.Request) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", target.Addr().String())
		},
		Hooks: gateway.Hooks{Ended: func(_ gateway.Request, e gateway.Ended) { ended <- e }},
	})
	if _, err := io.WriteString(client, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	conn, err := target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// A target that resets too early is one that can't be dialed.
	if _, err := io.ReadFull(client, make([]byte, len("HTTP/1.1 200 OK\r\n\r\n"))); err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
	if e := <-ended; !errors.Is(e.Err, syscall.ECONNRESET) || strings.Contains(e.Err.Error(), "relay") {
		t.Errorf("got %v, want the reset alone", e.Err)
	}
}
