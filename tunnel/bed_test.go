package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// wires are the pipes between agents and servers of one test, by address: a
// Transport without a network, so that synctest has the clock.
type wires struct {
	mu        sync.Mutex // guards the fields below
	listeners map[string]*wireListener
	ends      []net.Conn
	dials     []time.Time
	wrap      func(net.Conn) net.Conn // the server's ends; may be nil
}

func (w *wires) Listen(_ context.Context, address string) (net.Listener, error) {
	l := &wireListener{wires: w, address: address, conns: make(chan net.Conn), done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners == nil {
		w.listeners = map[string]*wireListener{}
	}
	w.listeners[address] = l
	return l, nil
}

func (w *wires) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	l, wrap := w.listeners[address], w.wrap
	w.dials = append(w.dials, time.Now())
	w.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	if wrap != nil {
		far = wrap(far)
	}
	select {
	case l.conns <- far:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ends = append(w.ends, near, far)
		return near, nil
	case <-l.done:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut ends all connections.
func (w *wires) cut() {
	w.mu.Lock()
	ends := w.ends
	w.ends = nil
	w.mu.Unlock()
	for _, end := range ends {
		end.Close()
	}
}

// times are those of the dials so far.
func (w *wires) times() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]time.Time(nil), w.dials...)
}

type wireListener struct {
	wires   *wires
	address string
	conns   chan net.Conn
	once    sync.Once
	done    chan struct{}
}

func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *wireListener) Close() error {
	l.once.Do(func() { close(l.done) })
	l.wires.mu.Lock()
	defer l.wires.mu.Unlock()
	if l.wires.listeners[l.address] == l {
		delete(l.wires.listeners, l.address)
	}
	return nil
}

func (l *wireListener) Addr() net.Addr { return tunnel.Addr{Cluster: l.address} }

// bed is a server with agents on wires.
type bed struct {
	t  testing.TB
	s  *tunnel.Server
	w  *wires
	up chan tunnel.SessionInfo // sessions that begin

	stopServe context.CancelFunc
	served    chan error
	clients   sync.WaitGroup
}

const (
	testCluster = "default/prod"
	wireAddress = "hub:1"
)

// newBed serves s at wireAddress until the test ends.
func newBed(t testing.TB, s *tunnel.Server) *bed {
	t.Helper()
	return newBedAt(t, s, &wires{}, wireAddress)
}

func newBedAt(t testing.TB, s *tunnel.Server, w *wires, address string) *bed {
	t.Helper()
	b := &bed{t: t, s: s, w: w, up: make(chan tunnel.SessionInfo, 10000), served: make(chan error, 1)}
	if s.Authority == nil {
		a, err := tunnel.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		s.Authority = a
	}
	if connected := s.Hooks.Connected; connected == nil {
		s.Hooks.Connected = func(i tunnel.SessionInfo) { b.up <- i }
	}
	l, err := w.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, b.stopServe = context.WithCancel(context.Background())
	go func() { b.served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		b.s.Close()
		b.clients.Wait()
		b.stopServe()
	})
	return b
}

// agent is a running Agent.
type agent struct {
	*tunnel.Agent
	stop func() // ends Run and waits for it
}

// agent runs a for testCluster, on the wires unless it says otherwise, and
// returns when the server has its session.
func (b *bed) agent(a *tunnel.Agent) *agent {
	b.t.Helper()
	running := b.start(a)
	b.await()
	return running
}

// await returns when a session begins.
func (b *bed) await() tunnel.SessionInfo {
	b.t.Helper()
	select {
	case info := <-b.up:
		return info
	case <-time.After(time.Minute):
		b.t.Fatal("no agent connects")
		panic("unreachable")
	}
}

// start is agent without waiting.
func (b *bed) start(a *tunnel.Agent) *agent {
	b.t.Helper()
	if a.Invitation == nil {
		inv := b.invite()
		a.Invitation = func(context.Context) (tunnel.Invitation, error) { return inv, nil }
	}
	if a.Servers == nil {
		a.Servers = []string{wireAddress}
	}
	if a.Dial == nil && !strings.Contains(a.Servers[0], "127.0.0.1") {
		a.Dial = b.w.Dial
	}
	if a.Credentials == nil {
		a.Credentials = &tunnel.MemoryCredentials{}
	}
	if a.Targets.Allow == nil {
		a.Targets = testTargets()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	})
	b.t.Cleanup(stop)
	return &agent{a, stop}
}

func (b *bed) invite() tunnel.Invitation {
	b.t.Helper()
	inv, err := b.s.Invite(b.t.Context(), testCluster, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return inv
}

func (b *bed) dial(target string) (net.Conn, error) {
	return b.s.Dialer(testCluster).DialContext(b.t.Context(), "tcp", target)
}

// echo dials a target that echoes.
func (b *bed) echo() net.Conn {
	b.t.Helper()
	conn, err := b.dial("echo:7")
	if err != nil {
		b.t.Fatal(err)
	}
	checkEcho(b.t, conn)
	return conn
}

func checkEcho(t testing.TB, conn net.Conn) {
	t.Helper()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	var got [5]byte
	if _, err := io.ReadFull(conn, got[:]); err != nil || string(got[:]) != "hello" {
		t.Fatalf("got %q, %v, want the echo", got[:], err)
	}
}

// sessions are those of testCluster by Status.
func (b *bed) sessions() []tunnel.SessionInfo {
	for _, c := range b.s.Status().Clusters {
		if c.Cluster == testCluster {
			return c.Sessions
		}
	}
	return nil
}

// testTargets are in memory: port 7 echoes, 9 takes what comes, 13 sends 1 MiB
// and ends, 14 sends 1 KiB and ends; the others fail as targetErrors says.
func testTargets() tunnel.Targets {
	n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: dialTest}
	return *targetsThrough(n, tunnel.Targets{Allow: []string{"*:1-100"}})
}

var targetErrors = map[string]error{
	"1": syscall.ECONNREFUSED,
	"2": syscall.EHOSTUNREACH,
	"4": syscall.ETIMEDOUT,
	"5": errors.New("secret"),
}

func dialTest(ctx context.Context, _, address string) (net.Conn, error) {
	_, port, _ := net.SplitHostPort(address)
	if err := targetErrors[port]; err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	near, far := net.Pipe()
	switch port {
	case "3": // silent
		<-ctx.Done()
		return nil, ctx.Err()
	case "7":
		go func() {
			io.Copy(far, far)
			far.Close()
		}()
	case "9":
		go io.Copy(io.Discard, far)
	case "13", "14":
		size := 1 << 20
		if port == "14" {
			size = 1 << 10
		}
		go func() {
			far.Write(make([]byte, size))
			far.Close()
		}()
	default:
		return nil, errors.New("port " + strconv.Quote(port))
	}
	return near, nil
}

// carrierKinds are what the main tests run over.
var carrierKinds = []struct {
	name string
	bed  func(t *testing.T, s *tunnel.Server) (b *bed, address string)
}{
	{"pipe", func(t *testing.T, s *tunnel.Server) (*bed, string) { return newBed(t, s), wireAddress }},
	{"tcp", func(t *testing.T, s *tunnel.Server) (*bed, string) {
		b := newBed(t, s)
		l := listen(t)
		b.serveAlso(l)
		return b, l.Addr().String()
	}},
	{"websocket listener", func(t *testing.T, s *tunnel.Server) (*bed, string) {
		b := newBed(t, s)
		l := tunnel.ListenWebSocket(listen(t), nil)
		b.serveAlso(l)
		return b, "ws://" + l.Addr().String() + "/agent"
	}},
}

// serveAlso has the server serve another listener.
func (b *bed) serveAlso(l net.Listener) {
	b.clients.Go(func() {
		if err := b.s.Serve(context.Background(), l); err != nil && codeOf(err) != tunnel.CodeClosed {
			b.t.Errorf("Serve: %v", err)
		}
	})
}
