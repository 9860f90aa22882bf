package dialer_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/causewayproject/causeway/dialer"
)

// readHead reads a request up to its empty line.
func readHead(br *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String(), err
		}
	}
}

// scripted is a proxy that answers each request on a connection with the next
// of replies, byte by byte if drip is set, and then echoes.
func scripted(t *testing.T, drip bool, replies ...string) (addr string) {
	return serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		for _, reply := range replies {
			if _, err := readHead(br); err != nil {
				return
			}
			if !drip {
				io.WriteString(conn, reply)
				continue
			}
			io.Copy(conn, iotest.OneByteReader(strings.NewReader(reply)))
		}
		io.Copy(conn, br)
	})
}

// exchange checks that the tunnel carries what the target has said already
// (want), and then both ways.
func exchange(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("first bytes: got %q, %v; want %q", got, err, want)
	}
	io.WriteString(conn, "hello")
	got = make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Fatalf("echo: got %q, %v", got, err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatalf("CloseWrite: %v", err)
	}
	if n, err := conn.Read(got); n != 0 || err != io.EOF {
		t.Fatalf("after half-close: got %d bytes, %v; want EOF", n, err)
	}
}

func TestHTTPConnectSuccess(t *testing.T) {
	big := "X-Big: " + strings.Repeat("x", 10_000) + "\r\n"
	for _, tt := range []struct{ name, reply, early string }{
		{"plain", "HTTP/1.1 200 Connection established\r\n\r\n", ""},
		{"201", "HTTP/1.1 201 Created\r\n\r\n", ""},
		{"204", "HTTP/1.1 204 No Content\r\n\r\n", ""},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n", ""},
		{"no reason", "HTTP/1.1 200\r\n\r\n", ""},
		{"no reason but its space", "HTTP/1.1 200 \r\n\r\n", ""},
		{"LF only", "HTTP/1.1 200 OK\nVia: x\n\n", ""},
		{"Content-Length ignored", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", ""},
		{"chunked ignored", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "SSH-2.0-x\r\n"},
		{"header that net/http refuses", "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n", ""},
		{"long line", "HTTP/1.1 200 OK\r\n" + big + "\r\n", "early"},
		{"100", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", ""},
		{"103 twice", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 2) + "HTTP/1.1 200 OK\r\n\r\n", "x"},
		{"banner with the 200", "HTTP/1.1 200 OK\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"},
		{"banner that looks like a header", "HTTP/1.1 200 OK\r\n\r\n", "\r\n\r\nHTTP/1.1 407 no\r\n\r\n"},
		{"banner larger than the buffer", "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("0123456789", 2000)},
	} {
		for _, drip := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/drip=%t", tt.name, drip), func(t *testing.T) {
				d := &dialer.HTTPConnect{
					Addr:    scripted(t, drip, tt.reply+tt.early),
					Forward: checked(t),
				}
				conn, err := d.DialContext(testContext(t), "tcp", target)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if got := conn.RemoteAddr().String(); got != d.Addr {
					t.Errorf("RemoteAddr: got %s, want the proxy's, %s", got, d.Addr)
				}
				if _, ok := conn.(*net.TCPConn); !ok && tt.early == "" {
					t.Errorf("got a %T, want the raw connection", conn)
				}
				exchange(t, conn, tt.early)
			})
		}
	}
}

// The whole of what was read ahead must come first, also through io.Copy.
func TestHTTPConnectEarlyBytesWriteTo(t *testing.T) {
	early := strings.Repeat("banner ", 300)
	addr := serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		readHead(bufio.NewReader(conn))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"+early)
		io.WriteString(conn, "late")
	})
	conn, err := (&dialer.HTTPConnect{Addr: addr}).DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got bytes.Buffer
	if _, err := io.Copy(&got, conn); err != nil || got.String() != early+"late" {
		t.Errorf("got %d bytes, %v; want %d", got.Len(), err, len(early)+4)
	}
}

func TestHTTPConnectRequest(t *testing.T) {
	requests := make(chan string, 1)
	addr := serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
		head, _ := readHead(bufio.NewReader(conn))
		requests <- head
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	})
	for _, tt := range []struct{ name, network, address, want string }{
		{"IPv4", "tcp", "192.0.2.10:6443", "192.0.2.10:6443"},
		{"IPv6 keeps its brackets", "tcp6", "[2001:db8::1]:6443", "[2001:db8::1]:6443"},
		{"mapped IPv4 is IPv4", "tcp", "[::ffff:192.0.2.1]:443", "192.0.2.1:443"},
		{"name", "tcp4", "api.example.com:443", "api.example.com:443"},
		{"IDN", "tcp", "bücher.example:443", "xn--bcher-kva.example:443"},
		{"absolute name", "tcp", "api.example.com.:443", "api.example.com.:443"},
		{"leading zeros of the port", "tcp", "api.example.com:0443", "api.example.com:443"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &dialer.HTTPConnect{Addr: addr, Header: func(_ context.Context, target string) (http.Header, error) {
				return http.Header{"X-Target": {target}}, nil
			}}
			conn, err := d.DialContext(testContext(t), tt.network, tt.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			want := fmt.Sprintf("CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\nX-Target: %[1]s\r\n\r\n", tt.want)
			if got := <-requests; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestHTTPConnectBadInput(t *testing.T) {
	header := func(name, value string) func(context.Context, string) (http.Header, error) {
		return func(context.Context, string) (http.Header, error) { return http.Header{name: {value}}, nil }
	}
	auth := func(user, password string) dialer.Authenticator { return dialer.Basic(dialer.Password(user, password)) }
	proxy := "proxy.invalid:3128"
	for _, tt := range []struct {
		name    string
		dialer  dialer.HTTPConnect
		network string
		address string
		want    string
	}{
		{"no proxy", dialer.HTTPConnect{}, "tcp", target, "Addr is required"},
		{"proxy without port", dialer.HTTPConnect{Addr: "proxy"}, "tcp", target, "Addr is not host:port"},
		{"proxy without host", dialer.HTTPConnect{Addr: ":3128"}, "tcp", target, "Addr has no host"},
		{"proxy port", dialer.HTTPConnect{Addr: "proxy:http"}, "tcp", target, "Addr: the port"},
		{"network", dialer.HTTPConnect{Addr: proxy}, "udp", target, "unknown network udp"},
		{"no port", dialer.HTTPConnect{Addr: proxy}, "tcp", "192.0.2.10", "not host:port"},
		{"no host", dialer.HTTPConnect{Addr: proxy}, "tcp", ":443", "no host"},
		{"port zero", dialer.HTTPConnect{Addr: proxy}, "tcp", "a:0", "1 to 65535"},
		{"port too large", dialer.HTTPConnect{Addr: proxy}, "tcp", "a:65536", "1 to 65535"},
		{"port by name", dialer.HTTPConnect{Addr: proxy}, "tcp", "a:https", "1 to 65535"},
		{"zone", dialer.HTTPConnect{Addr: proxy}, "tcp", "[fe80::1%eth0]:443", "zone"},
		{"space", dialer.HTTPConnect{Addr: proxy}, "tcp", "a b:443", "space or a control character"},
		{"CR LF", dialer.HTTPConnect{Addr: proxy}, "tcp", "a\r\nX: y:443", "not host:port"},
		{"control character", dialer.HTTPConnect{Addr: proxy}, "tcp", "a\x01b:443", "control character"},
		{"URL", dialer.HTTPConnect{Addr: proxy}, "tcp", "a/b:443", `holds '/'`},
		{"not an IDN", dialer.HTTPConnect{Addr: proxy}, "tcp", "\u00fc\u200b\u0000:443", "control character"},
		{"tcp4 of IPv6", dialer.HTTPConnect{Addr: proxy}, "tcp4", "[2001:db8::1]:443", "tcp4"},
		{"header name", dialer.HTTPConnect{Addr: proxy, Header: header("X y", "z")}, "tcp", target, "not a valid header name"},
		{"header value", dialer.HTTPConnect{Addr: proxy, Header: header("X", "a\r\nb")}, "tcp", target, "control character"},
		{"header Host", dialer.HTTPConnect{Addr: proxy, Header: header("host", "x")}, "tcp", target, "Host can't be set"},
		{"user with colon", dialer.HTTPConnect{Addr: proxy, Auth: auth("a:b", "canary")}, "tcp", target, "colon"},
		{"password with newline", dialer.HTTPConnect{Addr: proxy, Auth: auth("a", "canary\n")}, "tcp", target, "control character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Header is asked for on a connection; nothing may reach the network
			// before that.
			d := tt.dialer
			client, server := net.Pipe()
			defer server.Close()
			defer client.Close()
			d.Forward = dialer.Func(func(context.Context, string, string) (net.Conn, error) {
				if d.Header == nil {
					t.Error("the proxy was dialed")
				}
				return client, nil
			})
			conn, err := d.DialContext(testContext(t), tt.network, tt.address)
			if err == nil {
				conn.Close()
				t.Fatal("got no error")
			}
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig && e.Phase != dialer.PhaseAuth {
				t.Errorf("got %#v, want an *Error of the config or auth phase", err)
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %q, want it to contain %q", err, tt.want)
			}
		})
	}
}

func TestHTTPConnectRefusal(t *testing.T) {
	for _, tt := range []struct {
		name, reply string
		status      int
		phase       dialer.Phase
		body        string
		want        []string
	}{
		{
			"squid's 403", "HTTP/1.1 403 Forbidden\r\nX-Squid-Error: ERR_ACCESS_DENIED 0\r\nContent-Length: 6\r\n\r\ndenied",
			403, dialer.PhaseConnect, "denied",
			[]string{"403 Forbidden", "ERR_ACCESS_DENIED", "allow port 6443"},
		},
		{"no reason", "HTTP/1.1 407\r\n\r\n", 407, dialer.PhaseAuth, "", []string{"407 Proxy Authentication Required"}},
		{"no reason, no CRLF, closed", "HTTP/1.1 407\n", 407, dialer.PhaseAuth, "", []string{"407"}},
		{"tinyproxy's 401", "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", 401, dialer.PhaseAuth, "", []string{"401 Unauthorized"}},
		{"502", "HTTP/1.0 502 Bad Gateway\r\n\r\n", 502, dialer.PhaseConnect, "", []string{"502 Bad Gateway"}},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", 302, dialer.PhaseConnect, "", []string{"302"}},
		{"101", "HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, dialer.PhaseConnect, "", []string{"101"}},
		{"unknown", "HTTP/1.1 799 what\r\n\r\n", 799, dialer.PhaseConnect, "", []string{"799 what"}},
		{
			"chunked body", "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n",
			503, dialer.PhaseConnect, "bad", []string{"503 No"},
		},
		{"body until close, kept open", "HTTP/1.1 500 No\r\n\r\noops", 500, dialer.PhaseConnect, "oops", []string{"500"}},
		{"header that net/http refuses", "HTTP/1.1 500 No\r\nbad header\r\n\r\n", 500, dialer.PhaseConnect, "", []string{"500 No"}},
		{"control characters", "HTTP/1.1 500 a\x1b[31mb\r\n\r\n", 500, dialer.PhaseConnect, "", []string{"a?[31mb"}},
		{"huge body", "HTTP/1.1 500 No\r\nContent-Length: 9999999\r\n\r\n" + strings.Repeat("x", 200_000), 500, dialer.PhaseConnect, strings.Repeat("x", 4<<10), []string{"500"}},
		{"huge header of a refusal", "HTTP/1.1 500 No\r\nX: " + strings.Repeat("x", 100_000), 500, dialer.PhaseConnect, "", []string{"500 No"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &dialer.HTTPConnect{Forward: checked(t)}
			d.Addr = serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
				readHead(bufio.NewReader(conn))
				io.WriteString(conn, tt.reply)
				if !strings.Contains(tt.name, "closed") {
					hold(ctx, conn)
				}
			})
			_, err := d.DialContext(testContext(t), "tcp", target)
			var e *dialer.Error
			var refusal *dialer.Refusal
			if !errors.As(err, &e) || !errors.As(err, &refusal) {
				t.Fatalf("got %v, want an *Error with a *Refusal", err)
			}
			if e.Status != tt.status || refusal.StatusCode != tt.status || e.Phase != tt.phase {
				t.Errorf("got status %d and %d in phase %s, want %d in %s", e.Status, refusal.StatusCode, e.Phase, tt.status, tt.phase)
			}
			if string(refusal.Body) != tt.body {
				t.Errorf("got a body of %d bytes, want %d", len(refusal.Body), len(tt.body))
			}
			if e.Addr != target || e.Proxy != "http://"+d.Addr {
				t.Errorf("got Addr %q, Proxy %q", e.Addr, e.Proxy)
			}
			for _, want := range append(tt.want, "dialer: "+target+" through http://"+d.Addr) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

func TestHTTPConnectMalformed(t *testing.T) {
	for _, tt := range []struct{ name, reply, want string }{
		{"empty", "", "closed the connection before its answer"},
		{"cut status line", "HTTP/1.1 20", "closed the connection before its answer"},
		{"cut header", "HTTP/1.1 200 OK\r\nVia: x\r\n", "closed the connection before its answer"},
		{"closed after 100", "HTTP/1.1 100 Continue\r\n\r\n", "closed the connection before its answer"},
		{"TLS alert", "\x15\x03\x01\x00\x02\x02\x46\n", "https proxy"},
		{"SSH", "SSH-2.0-OpenSSH_9.2\r\n", "not a proxy"},
		{"SOCKS", "\x05\xff\n", "SOCKS5"},
		{"HTTP/2", "HTTP/2 200\r\n\r\n", "not HTTP/1.x"},
		{"no version", "HTTP/1 200 OK\r\n\r\n", "not HTTP/1.x"},
		{"code of two digits", "HTTP/1.1 20 OK\r\n\r\n", "not HTTP/1.x"},
		{"code with sign", "HTTP/1.1 +20 OK\r\n\r\n", "not HTTP/1.x"},
		{"code 099", "HTTP/1.1 099 OK\r\n\r\n", "not HTTP/1.x"},
		{"glued reason", "HTTP/1.1 200OK\r\n\r\n", "not HTTP/1.x"},
		{"NUL", "HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", "NUL"},
		{"huge header", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70_000), "larger than 65536"},
		{"huge status line", "HTTP/1.1 200 " + strings.Repeat("x", 70_000), "larger than 65536"},
		{"endless headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 20_000), "larger than 65536"},
		{"endless 1xx", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 5_000), "larger than 65536"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &dialer.HTTPConnect{Forward: checked(t)}
			d.Addr = serve(t, listen(t), func(_ context.Context, conn net.Conn) {
				readHead(bufio.NewReader(conn))
				io.WriteString(conn, tt.reply)
			})
			conn, err := d.DialContext(testContext(t), "tcp", target)
			if err == nil {
				conn.Close()
				t.Fatal("got no error")
			}
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != dialer.PhaseConnect || e.Status != 0 {
				t.Errorf("got %#v, want an *Error of the connect phase", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to contain %q", err, tt.want)
			}
		})
	}
}

// A proxy that hangs, wherever it does, is bounded by the context, and the
// error is the context's.
func TestHTTPConnectContext(t *testing.T) {
	hangs := map[string]func(context.Context, net.Conn){
		"without a word": hold,
		"in the header": func(ctx context.Context, conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nVia:")
			hold(ctx, conn)
		},
		"dripping": func(ctx context.Context, conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
				if _, err := io.WriteString(conn, "X"); err != nil {
					return
				}
			}
		},
	}
	for name, hang := range hangs {
		t.Run(name, func(t *testing.T) {
			d := &dialer.HTTPConnect{Addr: serve(t, listen(t), hang), Forward: checked(t)}
			t.Run("cancel", func(t *testing.T) {
				ctx, cancel := context.WithCancel(testContext(t))
				time.AfterFunc(20*time.Millisecond, cancel)
				_, err := d.DialContext(ctx, "tcp", target)
				if !errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v, want context.Canceled and no timeout", err)
				}
				var ne net.Error
				if !errors.As(err, &ne) || ne.Timeout() {
					t.Errorf("got Timeout() true for a cancel")
				}
			})
			t.Run("deadline", func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				checkTimeout(t, d, ctx)
			})
			t.Run("Timeout", func(t *testing.T) {
				d := &dialer.HTTPConnect{Addr: d.Addr, Forward: d.Forward, Timeout: 20 * time.Millisecond}
				checkTimeout(t, d, t.Context())
			})
			t.Run("cause", func(t *testing.T) {
				cause := errors.New("shutting down")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
				_, err := d.DialContext(ctx, "tcp", target)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
					t.Errorf("got %v, want context.Canceled and its cause", err)
				}
			})
		})
	}
}

func checkTimeout(t *testing.T, d dialer.Dialer, ctx context.Context) {
	t.Helper()
	_, err := d.DialContext(ctx, "tcp", target)
	var ne net.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("got %v, want context.DeadlineExceeded that is a timeout", err)
	}
}

// A context that ends after the dial does not touch the connection.
func TestHTTPConnectContextAfterwards(t *testing.T) {
	addr := scripted(t, false, "HTTP/1.1 200 OK\r\n\r\n")
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := (&dialer.HTTPConnect{Addr: addr}).DialContext(ctx, "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	exchange(t, conn, "")
}

func TestHTTPConnectUnreachableProxy(t *testing.T) {
	const addr = "127.0.0.1:1" // a port just closed may be another test's by now
	_, err := (&dialer.HTTPConnect{Addr: addr}).DialContext(testContext(t), "tcp", target)
	var e *dialer.Error
	if !errors.As(err, &e) || e.Phase != dialer.PhaseTCP || e.Proxy != "http://"+addr {
		t.Errorf("got %#v, want an *Error of the tcp phase", err)
	}
	if !strings.Contains(err.Error(), "connection refused") || strings.Count(err.Error(), "dialer:") != 1 {
		t.Errorf("got %q", err)
	}
	_, err = (&dialer.HTTPConnect{Addr: "proxy.invalid:3128"}).DialContext(testContext(t), "tcp", target)
	if !errors.As(err, &e) || e.Phase != dialer.PhaseDNS {
		t.Errorf("got %v, want an *Error of the dns phase", err)
	}
}
