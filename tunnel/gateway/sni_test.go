package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// open serves a door until the test ends, and returns its address and how to
// end it before.
func open(t testing.TB, g *gateway.Gateway, door func(context.Context, net.Listener) error) (addr string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- door(ctx, l) }()
	t.Cleanup(func() {
		g.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v from the door", err)
		}
	})
	return l.Addr().String(), cancel
}

// call dials a door.
func call(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn.(*net.TCPConn)
}

// failures collects what Hooks see.
type failures struct {
	mu   sync.Mutex
	errs []*gateway.Error
}

func (f *failures) hook(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var e *gateway.Error
	if errors.As(err, &e) {
		f.errs = append(f.errs, e)
	}
}

// only returns the one failure there was, after the Gateway's end.
func (f *failures) only(t *testing.T, g *gateway.Gateway) *gateway.Error {
	t.Helper()
	g.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errs) != 1 {
		t.Fatalf("hooks have seen %v, want one failure", f.errs)
	}
	return f.errs[0]
}

// tableOf leads api.example.com to the cluster prod.
func tableOf() *gateway.Table {
	table := &gateway.Table{}
	table.Set(map[string]gateway.Place{"api.example.com": {Cluster: "prod", Address: "kubernetes.default.svc:443"}})
	return table
}

func alert(code byte) string { return string([]byte{21, 3, 3, 0, 2, 2, code}) }

// What the SNI door answers to those who get no target.
func TestSNIRefusals(t *testing.T) {
	ask := oneRecord(sniOf("api.example.com"))
	tests := []struct {
		name, say string
		set       func(*gateway.Gateway)
		dial      error
		want      string
		phase     gateway.Phase
		text      string
	}{
		{name: "unknown name", say: oneRecord(sniOf("other.example.com")), want: alert(112), phase: gateway.PhaseRoute, text: `nothing is served by the name "other.example.com"`},
		{name: "no name", say: oneRecord(), want: alert(112), phase: gateway.PhaseRoute, text: "nothing is served"},
		{name: "early data is read", say: oneRecord(sniOf("x.y")) + strings.Repeat("z", 200_000), want: alert(112), phase: gateway.PhaseRoute, text: "nothing"},
		{name: "not let in", say: ask, set: func(g *gateway.Gateway) { g.Authenticate = password }, want: alert(49), phase: gateway.PhaseAuthenticate, text: "credentials"},
		{name: "cluster of another", say: ask, set: func(g *gateway.Gateway) {
			g.Authenticate = func(context.Context, gateway.Credentials) (gateway.Identity, error) {
				return gateway.Identity{Name: "eve", Cluster: "test"}, nil
			}
		}, want: alert(49), phase: gateway.PhaseRoute, text: `may not reach cluster "prod"`},
		{name: "forbidden", say: ask, dial: syscall.EACCES, want: alert(49), phase: gateway.PhaseDial, text: "permission denied"},
		{name: "refused", say: ask, dial: syscall.ECONNREFUSED, want: alert(80), phase: gateway.PhaseDial, text: "connection refused"},
		{name: "HTTP", say: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", want: "HTTP/1.1 400 Bad Request: this port speaks TLS\r\n", phase: gateway.PhaseHandshake, text: "HTTP"},
		{name: "SSL 2", say: "\x80\x2e\x01\x00\x02\x00\x15", want: alert(70), phase: gateway.PhaseHandshake, text: "SSL 2"},
		{name: "malformed", say: oneRecord(sniOf("a.b", "c.d")), want: alert(50), phase: gateway.PhaseHandshake, text: "malformed"},
		{name: "too large", say: ask, set: func(g *gateway.Gateway) { g.MaxHeader = 20 }, want: alert(50), phase: gateway.PhaseHandshake, text: "too large"},
		{name: "slow", say: ask[:20], set: func(g *gateway.Gateway) { g.HandshakeTimeout = 200 * time.Millisecond }, want: "", phase: gateway.PhaseHandshake, text: "timeout"},
		{name: "no room", say: ask, set: func(g *gateway.Gateway) { g.MaxConns = -1 }, want: alert(80), phase: gateway.PhaseLimit, text: "too many"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, seen := &gateway.Gateway{Authenticate: gateway.Anyone}, &failures{}
			if tt.set != nil {
				tt.set(g)
			}
			g.Route, g.Hooks.Failed = gateway.ByTable(tableOf()), seen.hook
			g.Dial = func(context.Context, gateway.Request) (net.Conn, error) { return nil, tt.dial }
			addr, _ := open(t, g, g.ServeSNI)
			conn := call(t, addr)
			go io.WriteString(conn, tt.say)
			got, err := io.ReadAll(conn)
			if tt.name == "no room" && errors.Is(err, syscall.ECONNRESET) {
				err = nil // no time for more
			}
			if err != nil || !strings.HasPrefix(string(got), tt.want) || tt.want == "" && len(got) > 0 {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
			conn.Close()
			if e := seen.only(t, g); e.Phase != tt.phase || e.Door != gateway.DoorSNI || !strings.Contains(e.Error(), tt.text) {
				t.Errorf("got %v, want phase %s and %q", e, tt.phase, tt.text)
			}
		})
	}
}

// A client that goes without a word is a health check, and no failure.
func TestSNISilent(t *testing.T) {
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Dial: func(context.Context, gateway.Request) (net.Conn, error) { return nil, net.ErrClosed }}
	g.Hooks.Failed = func(err error) { t.Errorf("got %v", err) }
	addr, _ := open(t, g, g.ServeSNI)
	conn := call(t, addr)
	conn.CloseWrite()
	if b, err := io.ReadAll(conn); len(b) != 0 || err != nil {
		t.Errorf("got %q, %v; want an end", b, err)
	}
}

// pair is a target: the Gateway's end and the test's.
func pair(t testing.TB) (near net.Conn, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return near, conn.(*net.TCPConn)
}

// way is a door and how a client goes through it.
type way struct {
	name string
	tls  *tls.Config
	door func(*gateway.Gateway) func(context.Context, net.Listener) error
	// enter goes from the first byte to the target's; early is sent with the
	// request. It returns what the target gets before early.
	enter func(t testing.TB, conn *net.TCPConn, early string) (client net.Conn, before string)
}

var ways = []way{
	{"sni", nil, func(g *gateway.Gateway) func(context.Context, net.Listener) error { return g.ServeSNI },
		func(t testing.TB, conn *net.TCPConn, early string) (net.Conn, string) {
			say := records(message(extension(0x2a2a, strings.Repeat("x", 20<<10)), sniOf("api.example.com")), 5000)
			send(t, conn, say+early)
			return conn, say
		}},
	{"socks5", nil, func(g *gateway.Gateway) func(context.Context, net.Listener) error { return g.ServeSOCKS5 }, enterSOCKS5},
	{"socks5 tls", serverTLS(),
		func(g *gateway.Gateway) func(context.Context, net.Listener) error { return g.ServeSOCKS5 },
		func(t testing.TB, conn *net.TCPConn, early string) (net.Conn, string) {
			return enterSOCKS5On(t, tls.Client(conn, clientTLS()), early)
		}},
}

func enterSOCKS5(t testing.TB, conn *net.TCPConn, early string) (net.Conn, string) {
	return enterSOCKS5On(t, conn, early)
}

func enterSOCKS5On(t testing.TB, conn net.Conn, early string) (net.Conn, string) {
	// All at once, as a client may that knows what it will be answered.
	send(t, conn, "\x05\x01\x00"+"\x05\x01\x00\x03\x01a\x01\xbb"+early)
	expect(t, conn, []byte("\x05\x00"))
	return conn, ""
}

// connected is what the client of a way is told at last.
func (w *way) connected() string {
	if w.name == "sni" {
		return ""
	}
	return "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
}

func send(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// newGateway has the table, and lets everybody in.
func (w *way) newGateway() *gateway.Gateway {
	g := &gateway.Gateway{Authenticate: gateway.Anyone, TLS: w.tls}
	if w.name == "sni" {
		g.Route = gateway.ByTable(tableOf())
	}
	return g
}

// tunnel is one connection. The client has said early, which the target gets.
func (w *way) tunnel(t testing.TB, g *gateway.Gateway, early string) (client net.Conn, raw, target *net.TCPConn, end func()) {
	t.Helper()
	near, far := pair(t)
	g.Dial = func(context.Context, gateway.Request) (net.Conn, error) { return near, nil }
	addr, end := open(t, g, w.door(g))
	raw = call(t, addr)
	client, before := w.enter(t, raw, early)
	expect(t, client, []byte(w.connected()))
	expect(t, far, []byte(before+early))
	return client, raw, far, end
}

// TestEarlyRelay: what the client said, its end and its resets reach the target, and
// the other way round.
func TestEarlyRelay(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Run("half-close", func(t *testing.T) {
				g := w.newGateway()
				ended := make(chan gateway.Ended, 1)
				g.Hooks.Ended = func(_ gateway.Request, e gateway.Ended) { ended <- e }
				client, _, target, _ := w.tunnel(t, g, "early")
				client.(interface{ CloseWrite() error }).CloseWrite()
				expectEnd(t, target)
				send(t, target, "answer")
				target.CloseWrite()
				expect(t, client, []byte("answer"))
				expectEnd(t, client)
				e := <-ended
				if e.Err != nil || e.In < 5 || e.Out != 6 {
					t.Errorf("got %+v, want no error, 5 bytes or more in and 6 out", e)
				}
				g.Close()
				if s := g.Status(); s.Open != 0 || s.Total != 1 || s.Failed != 0 || s.BytesIn != uint64(e.In) || s.BytesOut != 6 {
					t.Errorf("got %+v", s)
				}
			})
			t.Run("target resets", func(t *testing.T) {
				client, _, target, _ := w.tunnel(t, w.newGateway(), "")
				target.SetLinger(0)
				target.Close()
				expectCut(t, door{}, client)
			})
			t.Run("client resets", func(t *testing.T) {
				_, raw, target, _ := w.tunnel(t, w.newGateway(), "early")
				raw.SetLinger(0)
				raw.Close()
				if n, err := io.Copy(io.Discard, target); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("got %d bytes, %v; want a reset", n, err)
				}
			})
			t.Run("drain", func(t *testing.T) {
				g := w.newGateway()
				client, _, target, end := w.tunnel(t, g, "early")
				end() // Grace has not passed
				send(t, client, "more")
				_, err := io.ReadFull(target, make([]byte, 4))
				if err != nil {
					t.Errorf("got %v, want what is sent in the time of Grace", err)
				}
				g.Close()
				if n, err := io.Copy(io.Discard, target); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("got %d bytes, %v; want a reset", n, err)
				}
			})
		})
	}
	t.Run("TLS cut", func(t *testing.T) {
		_, raw, target, _ := ways[2].tunnel(t, ways[2].newGateway(), "early")
		raw.CloseWrite() // without a close_notify
		if n, err := io.Copy(io.Discard, target); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %d bytes, %v; want a reset", n, err)
		}
	})
}

// TestHangUp: the dial ends when the client goes, and with the drain.
func TestHangUp(t *testing.T) {
	for _, w := range ways {
		for _, how := range []string{"ends", "resets", "the Gateway is closed"} {
			t.Run(w.name+" "+how, func(t *testing.T) {
				g, seen := w.newGateway(), &failures{}
				g.Hooks.Failed = seen.hook
				dialing := make(chan struct{})
				g.Dial = func(ctx context.Context, _ gateway.Request) (net.Conn, error) {
					close(dialing)
					<-ctx.Done()
					return nil, ctx.Err()
				}
				addr, _ := open(t, g, w.door(g))
				raw := call(t, addr)
				w.enter(t, raw, "")
				<-dialing
				want := "hung up"
				switch how {
				case "ends":
					raw.Close()
				case "resets":
					raw.SetLinger(0)
					raw.Close()
				default:
					want = "canceled"
				}
				if e := waitFailure(t, g, seen, how == "the Gateway is closed"); e.Phase != gateway.PhaseDial || !strings.Contains(e.Error(), want) {
					t.Errorf("got %v, want %q", e, want)
				}
			})
		}
	}
}

// waitFailure returns the failure, which ends the Gateway only if it has to.
func waitFailure(t *testing.T, g *gateway.Gateway, seen *failures, end bool) *gateway.Error {
	t.Helper()
	if !end {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			t.Errorf("the dial did not end: %v", err)
		}
	}
	return seen.only(t, g)
}

// TestDialIgnoresHangUp: a target that is connected for nobody is closed.
func TestDialIgnoresHangUp(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			near, far := pair(t)
			g, seen := w.newGateway(), &failures{}
			g.Hooks.Failed = seen.hook
			dialing := make(chan struct{})
			g.Dial = func(ctx context.Context, _ gateway.Request) (net.Conn, error) {
				close(dialing)
				<-ctx.Done()
				return near, nil
			}
			addr, _ := open(t, g, w.door(g))
			raw := call(t, addr)
			w.enter(t, raw, "")
			<-dialing
			raw.Close()
			if n, err := io.Copy(io.Discard, far); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %d bytes, %v; want a reset", n, err)
			}
			if e := seen.only(t, g); !strings.Contains(e.Error(), "hung up") {
				t.Errorf("got %v, want that the client hung up", e)
			}
		})
	}
}

// TestShutdownOfSilent: who has asked for nothing is not waited for.
func TestShutdownOfSilent(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			g, seen := w.newGateway(), &failures{}
			g.HandshakeTimeout, g.Hooks.Failed = time.Hour, seen.hook
			g.Dial = func(context.Context, gateway.Request) (net.Conn, error) { return nil, net.ErrClosed }
			addr, _ := open(t, g, w.door(g))
			conn := call(t, addr)
			send(t, conn, "\x16")
			for g.Status().Open == 0 {
				runtime.Gosched()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := g.Shutdown(ctx); err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestSNIRealTLS: clients and a server that know of nothing.
func TestSNIRealTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s for %s", r.Proto, r.TLS.ServerName)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server("gateway", "api.example.com")}}
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	table, got := tableOf(), make(chan gateway.Request, 10)
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Route: gateway.ByTable(table)}
	g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		got <- r
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	addr, _ := open(t, g, g.ServeSNI)
	_, port, _ := net.SplitHostPort(addr)
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bundle, ca.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	curl := func(name string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "curl", "-sS", "-m", "20", "--noproxy", "*", "--cacert", bundle,
			"--resolve", name+":"+port+":127.0.0.1", "https://"+name+":"+port+"/").CombinedOutput()
		return string(out), err
	}
	if out, err := curl("API.example.com"); err != nil || !strings.HasSuffix(out, "HTTP/2.0 for api.example.com") {
		t.Errorf("curl: got %q, %v", out, err)
	}
	if r := <-got; r.Cluster != "prod" || r.Address != "kubernetes.default.svc:443" || r.Door != gateway.DoorSNI || r.Credentials.Remote == nil {
		t.Errorf("got %+v", r)
	}
	if out, err := curl("new.example.com"); err == nil || !strings.Contains(out, "unrecognized name") {
		t.Errorf("curl of an unknown name: got %q, %v", out, err)
	}
	if _, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "new.example.com"}); err == nil || err.Error() != "remote error: tls: unrecognized name" {
		t.Errorf("got %v, want unrecognized name", err)
	}
	table.Set(map[string]gateway.Place{"*.example.com": {Cluster: "prod", Address: "a:1"}}) // while it runs
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "api.example.com", MaxVersion: version})
		if err != nil {
			t.Errorf("TLS %x: got %v", version, err)
			continue
		}
		conn.Close()
	}
	out, err := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", addr, "-noservername", "-brief").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unrecognized name") {
		t.Errorf("openssl without a name: got %q, %v", out, err)
	}
}
