package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// open serves a door until the test ends, and returns its address and how to
// end it before.
func open(t testing.TB, g *gateway.Gateway, door func(context.Context, net.Listener) error) (addr string, end func()) {
	t.Helper()
	return openOn(t, g, door, listen(t))
}

// listen returns a listener on loopback, for a door to close.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func openOn(t testing.TB, g *gateway.Gateway, door func(context.Context, net.Listener) error, l net.Listener) (addr string, end func()) {
	t.Helper()
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

// closingListener tells of its end.
type closingListener struct {
	net.Listener
	once   sync.Once
	closed chan struct{}
}

func (l *closingListener) Close() error {
	defer l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
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
				if e.Target == nil || e.Target.String() != target.LocalAddr().String() {
					t.Errorf("got the target's address %v, want %v", e.Target, target.LocalAddr())
				}
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
			t.Parallel()
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

// TestNoDeadlineLeft: HandshakeTimeout bounds neither the dial nor what comes
// after it.
func TestNoDeadlineLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		g := &gateway.Gateway{Authenticate: gateway.Anyone, HandshakeTimeout: time.Second, DialTimeout: 24 * time.Hour}
		g.Dial = func(context.Context, gateway.Request) (net.Conn, error) {
			time.Sleep(time.Hour)
			return near, nil
		}
		client, conn := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- g.HandleSOCKS5(conn) }()
		send(t, client, "\x05\x01\x00")
		expect(t, client, []byte("\x05\x00"))
		send(t, client, "\x05\x01\x00\x03\x01a\x01\xbb")
		expect(t, client, []byte("\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"))
		time.Sleep(time.Hour)
		go io.WriteString(client, "question")
		expect(t, far, []byte("question"))
		go io.WriteString(far, "answer")
		expect(t, client, []byte("answer"))
		client.Close()
		far.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLateHangUp: a client that hangs up is noticed for as long as the dial
// takes.
func TestLateHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway.Gateway{Authenticate: gateway.Anyone, HandshakeTimeout: time.Second, DialTimeout: 24 * time.Hour}
		began := time.Now()
		g.Dial = func(ctx context.Context, _ gateway.Request) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		client, conn := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- g.HandleSOCKS5(conn) }()
		send(t, client, "\x05\x01\x00")
		expect(t, client, []byte("\x05\x00"))
		send(t, client, "\x05\x01\x00\x03\x01a\x01\xbb")
		time.Sleep(time.Hour)
		client.Close()
		if err := <-done; err != nil || time.Since(began) != time.Hour {
			t.Errorf("got %v after %v, want the end after an hour", err, time.Since(began))
		}
	})
}

// TestShutdownWhileAuthenticating: nothing is dialed any more.
func TestShutdownWhileAuthenticating(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			g, seen := w.newGateway(), &failures{}
			asked, shut := make(chan struct{}), make(chan struct{})
			g.Authenticate = func(context.Context, gateway.Credentials) (gateway.Identity, error) {
				close(asked)
				<-shut
				return gateway.Identity{}, nil
			}
			g.Hooks.Failed = seen.hook
			g.Dial = func(context.Context, gateway.Request) (net.Conn, error) {
				t.Error("the target was dialed")
				return nil, net.ErrClosed
			}
			l := &closingListener{Listener: listen(t), closed: make(chan struct{})}
			addr, _ := openOn(t, g, w.door(g), l)
			client := call(t, addr)
			told := make(chan string, 1)
			go func() {
				conn, _ := w.enter(t, client, "")
				b, _ := io.ReadAll(conn)
				told <- string(b)
			}()
			<-asked
			done := make(chan error, 1)
			go func() { done <- g.Shutdown(t.Context()) }()
			<-l.closed // the door is, too
			close(shut)
			if err := <-done; err != nil {
				t.Errorf("got %v from Shutdown", err)
			}
			want := alert(80)
			if w.name != "sni" {
				want = "\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00"
			}
			if got := <-told; got != want {
				t.Errorf("the client is told %q, want %q", got, want)
			}
			if e := seen.only(t, g); !strings.Contains(e.Error(), "shuts down") {
				t.Errorf("got %v", e)
			}
		})
	}
}
