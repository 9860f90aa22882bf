package tunnel_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// twoAddresses is a dialer that knows a server and a proxy by two addresses each.
var twoAddresses = dialer.Direct{Dialer: &net.Dialer{Resolver: dnstest.Hosts{
	"server.test.": {"127.0.0.2", "127.0.0.3"}, "proxy.test.": {"127.0.0.2", "127.0.0.3"},
}.Resolver()}}

// listenPair listens at one port of two addresses.
func listenPair(t *testing.T) (first, second net.Listener, port string) {
	t.Helper()
	first, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(first.Addr().String())
	if second, err = net.Listen("tcp", "127.0.0.3:"+port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	return first, second, port
}

// TestAgentTriesEachAddress: of a name's addresses the first may accept and be silent, or lead
// to a replica that the agent has already; be it the server's name or the proxy's.
func TestAgentTriesEachAddress(t *testing.T) {
	quick := func(a *tunnel.Agent) *tunnel.Agent {
		a.HandshakeTimeout, a.FirstBackoff, a.MaxBackoff = time.Second, time.Millisecond, time.Millisecond
		return a
	}
	for name, answer := range map[string]func(net.Conn){
		"the first is silent":             func(conn net.Conn) { io.Copy(io.Discard, conn) },
		"the first hangs up":              func(net.Conn) {},
		"the first reads, and hangs up":   func(conn net.Conn) { conn.Read(make([]byte, 100)) },
		"the first speaks HTTP":           func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\n\r\n") },
		"the first is another's TLS":      func(conn net.Conn) { tls.Server(conn, pki.ServerTLS()).Handshake() },
		"the first begins, and is silent": func(conn net.Conn) { io.WriteString(conn, "\x16\x03\x03\x00"); io.Copy(io.Discard, conn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, l, port := listenPair(t)
			strange := proxytest.Serve(first, func(_ context.Context, conn net.Conn) { answer(conn) })
			defer strange.Close()
			b := newBed(t, &tunnel.Server{})
			b.serveAlso(l)
			b.agent(quick(&tunnel.Agent{Servers: []string{"server.test:" + port}, Dial: twoAddresses.DialContext}))
		})
	}
	t.Run("the first proxy is silent", func(t *testing.T) {
		t.Parallel()
		_, l, port := listenPair(t)
		proxy := proxytest.Serve(l, (&proxytest.HTTP{}).Handle)
		defer proxy.Close()
		b := newBed(t, &tunnel.Server{})
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b.serveAlso(server)
		through := &dialer.HTTPConnect{Addr: "proxy.test:" + port, Forward: twoAddresses}
		b.agent(quick(&tunnel.Agent{Servers: []string{server.Addr().String()}, Dial: through.DialContext}))
	})
}

// retries keeps what an agent says of its failures.
type retries struct {
	mu    sync.Mutex
	texts []string // of the errors
	waits []bool   // whether there is one
}

func (r *retries) add(_ string, err error, retry time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts, r.waits = append(r.texts, err.Error()), append(r.waits, retry > 0)
}

// TestOneLiveAddress: the agent goes to the next address at once, says which one failed, and
// comes back to the one that worked.
func TestOneLiveAddress(t *testing.T) {
	t.Parallel()
	first, l, port := listenPair(t)
	silent := proxytest.Serve(first, func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) })
	defer silent.Close()
	hosts := dnstest.Hosts{"server.test.": {"127.0.0.2", "127.0.0.4", "127.0.0.5", "127.0.0.3"}}
	for _, host := range hosts["server.test."][1:3] {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		defer proxytest.Serve(l, func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) }).Close()
	}
	live := make(chan net.Conn, 100) // the agent's connections
	connected := make(chan bool, 10)
	var failed retries
	b := newBed(t, &tunnel.Server{})
	b.serveAlso(l)
	direct := dialer.Direct{Dialer: &net.Dialer{Resolver: hosts.Resolver()}}
	b.start(&tunnel.Agent{
		Servers: []string{"server.test:" + port}, HandshakeTimeout: time.Second,
		FirstBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := direct.DialContext(ctx, network, address)
			if err == nil {
				live <- conn
			}
			return conn, err
		},
		Hooks: tunnel.AgentHooks{Failed: failed.add, Connected: func(string, tunnel.Identity) { connected <- true }},
	})
	<-connected
	dials := len(live)
	for range dials {
		(<-live).Close()
	}
	<-connected
	failed.mu.Lock()
	defer failed.mu.Unlock()
	if dials != 5 || len(live) != 1 || !slices.Equal(failed.waits, []bool{false, false, false}) {
		t.Fatalf("got %d dials and then %d, %q and waits %v; want 5 with the enrolment's and then one, and no waits after three failures", dials, len(live), failed.texts, failed.waits)
	}
	for i, text := range failed.texts {
		if want := "connect server.test:" + port + ": no answer in time: at " + net.JoinHostPort(hosts["server.test."][i], port) + ": the HandshakeTimeout of 1s is over: TLS handshake"; !strings.Contains(text, want) {
			t.Errorf("got %q, want %q", text, want)
		}
	}
}

// TestFailureNamesAddress: whatever one of a name's servers does wrong, the error says which it is.
func TestFailureNamesAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(inv *tunnel.Invitation, other tunnel.Invitation)
		want  string // behind the server; AT stands for the address
	}{
		"another authority": {func(inv *tunnel.Invitation, _ tunnel.Invitation) {}, ": the server's certificate is not of the pinned authority: at AT: "},
		"another's token":   {func(inv *tunnel.Invitation, other tunnel.Invitation) { inv.Pin = other.Pin }, ": unknown token: at AT"},
		"another cluster":   {func(inv *tunnel.Invitation, other tunnel.Invitation) { *inv, inv.Cluster = other, "default/x" }, ": the token or certificate belongs to another cluster: at AT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, l, port := listenPair(t)
			other, b := newBed(t, &tunnel.Server{}), newBed(t, &tunnel.Server{})
			other.serveAlso(first)
			b.serveAlso(l)
			inv, failed := b.invite(), make(chan error, 100)
			tt.spoil(&inv, other.invite())
			b.start(&tunnel.Agent{
				Servers: []string{"server.test:" + port}, Dial: twoAddresses.DialContext,
				Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil },
				Hooks:      tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) { failed <- err }},
			})
			want := " server.test:" + port + strings.ReplaceAll(tt.want, "AT", "127.0.0.2:"+port)
			if err := <-failed; !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "tunnel: enroll ") {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// TestWorkedStaysFirst: after an outage, in which all addresses of a name failed, the agent begins
// with the one that worked last.
func TestWorkedStaysFirst(t *testing.T) {
	t.Parallel()
	first, l, port := listenPair(t)
	silent := proxytest.Serve(first, func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) })
	defer silent.Close()
	turns, reached := make(chan bool, 10), make(chan net.Conn, 10)
	connected, failed := make(chan bool, 10), make(chan bool, 10)
	b := newBed(t, &tunnel.Server{})
	b.clients.Go(func() { b.s.Serve(context.Background(), l) })
	b.start(&tunnel.Agent{
		Servers: []string{"server.test:" + port}, HandshakeTimeout: time.Second,
		FirstBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			select {
			case <-turns:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			conn, err := twoAddresses.DialContext(ctx, network, address)
			if err == nil {
				reached <- conn
			}
			return conn, err
		},
		Hooks: tunnel.AgentHooks{
			Connected: func(string, tunnel.Identity) { connected <- true },
			Failed:    func(string, error, time.Duration) { failed <- true },
		},
	})
	var got []string
	next := func(until chan bool) (conn net.Conn) {
		turns <- true
		conn = <-reached
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		got = append(got, host)
		if until != nil {
			<-until
		}
		return conn
	}
	next(failed)
	next(nil) // the enrolment
	session := next(connected)
	l.Close()
	session.Close()
	next(failed)
	again, err := net.Listen("tcp", "127.0.0.3:"+port)
	if err != nil {
		t.Fatal(err)
	}
	b.serveAlso(again)
	next(nil)
	if want := []string{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.2", "127.0.0.3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWaitAfterEachRound: once all addresses of a name have failed, the agent waits.
func TestWaitAfterEachRound(t *testing.T) {
	t.Parallel()
	first, second, port := listenPair(t)
	for _, l := range []net.Listener{first, second} {
		defer proxytest.Serve(l, func(context.Context, net.Conn) {}).Close()
	}
	enough := make(chan bool)
	var failed retries
	newBed(t, &tunnel.Server{}).start(&tunnel.Agent{
		Servers: []string{"server.test:" + port}, Dial: twoAddresses.DialContext,
		FirstBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Hooks: tunnel.AgentHooks{Failed: func(server string, err error, retry time.Duration) {
			if failed.add(server, err, retry); len(failed.waits) == 6 {
				close(enough)
			}
		}},
	})
	<-enough
	failed.mu.Lock()
	defer failed.mu.Unlock()
	if got, want := failed.waits[:6], []bool{false, true, false, true, false, true}; !slices.Equal(got, want) {
		t.Errorf("got waits %v after %q, want %v", got, failed.texts, want)
	}
}

// TestSearchGoesOn: the search for a second server goes past the address that has worked.
func TestSearchGoesOn(t *testing.T) {
	t.Parallel()
	first, second, port := listenPair(t)
	r := newReplicas(t, "a", "b")
	r.beds["a"].serveAlso(first)
	r.beds["b"].serveAlso(second)
	r.beds["a"].start(&tunnel.Agent{
		Servers: []string{"server.test:" + port}, Dial: twoAddresses.DialContext,
		FirstBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
	})
	r.beds["a"].await()
	r.beds["b"].await()
}
