package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = "default/prod"

// run runs a command; without its name, the server.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if args[0][0] == '-' {
		args = append([]string{"server"}, args...)
	}
	_, err := command.Execute(ctx, command.Parent(&cobra.Command{Use: "causeway"}, Commands()...), args, stdin, stdout, stderr)
	return err
}

// startServer runs a server with a listener that leads to the target api:443.
func startServer(t testing.TB, dir string, args ...string) *clitest.Program {
	t.Helper()
	return clitest.Start(t, run, nil, append([]string{"--state", dir, "--listen", "127.0.0.1:0", "--status", "127.0.0.1:0",
		"--forward", "127.0.0.1:0=" + cluster + "/api:443", "--watch", "10ms", "--grace", "5s"}, args...)...)
}

func address(p *clitest.Program, name string) string {
	return p.Await(`for=` + name + ` address=(\S+)`)
}

// newInvitation runs enroll beside the server.
func newInvitation(t testing.TB, dir string, args ...string) tunnel.Invitation {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), append([]string{"enroll", cluster, "--state", dir, "--format", "env"}, args...), nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	inv, err := tunnel.ParseInvitation(out.String())
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// agentEvents are what a test waits for.
type agentEvents struct {
	connected, disconnected chan tunnel.Identity
	payloads                chan string
	failed                  chan error
}

// startAgent runs an agent that knows where api:443 is until the test ends.
func startAgent(t testing.TB, inv tunnel.Invitation, target string, change func(*tunnel.Agent)) *agentEvents {
	t.Helper()
	e := &agentEvents{make(chan tunnel.Identity, 100), make(chan tunnel.Identity, 100), make(chan string, 100), make(chan error, 100)}
	a := &tunnel.Agent{
		Credentials: &tunnel.MemoryCredentials{},
		Invitation:  func(context.Context) (tunnel.Invitation, error) { return inv, nil },
		Targets:     tunnel.Targets{Aliases: map[string]string{"api:443": target}},
		Grace:       -1, FirstBackoff: 10 * time.Millisecond,
		Payload: func(_ context.Context, p tunnel.Payload) error {
			e.payloads <- p.Name + "=" + string(p.Data)
			return nil
		},
		Hooks: tunnel.AgentHooks{
			Connected:    func(_ string, id tunnel.Identity) { e.connected <- id },
			Disconnected: func(string, error) { e.disconnected <- tunnel.Identity{} },
			Failed:       func(_ string, err error, _ time.Duration) { e.failed <- err },
		},
	}
	if change != nil {
		change(a)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e
}

func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// echo is a target.
func echo(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
		io.Copy(conn, conn)
		conn.(*net.TCPConn).CloseWrite()
	})
	t.Cleanup(s.Close)
	return s.Addr()
}

func dialLocal(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn.(*net.TCPConn)
}

// say sends a word, and reads it back.
func say(t testing.TB, conn net.Conn, word string) {
	t.Helper()
	if _, err := io.WriteString(conn, word); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != word {
		t.Fatalf("got %q, %v; want %q", got, err, word)
	}
}

func TestServer(t *testing.T) {
	dir := t.TempDir()
	p := startServer(t, dir)
	forward, status := address(p, "forward"), "http://"+address(p, "status")
	early, err := net.Dial("tcp", forward)
	if err == nil {
		_, err = early.Read(make([]byte, 1))
		early.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v without an agent, want a reset", err)
	}
	p.Await(`msg="door failed" .*door=forward .*error=.*no agent is connected`)
	if got, _ := clitest.Get(t, status+"/readyz?cluster="+cluster); got != http.StatusServiceUnavailable {
		t.Errorf("got %d without an agent, want 503", got)
	}
	e := startAgent(t, newInvitation(t, dir, "--server", address(p, "listen")), echo(t), nil)
	receive(t, "connection", e.connected)
	p.Await(`msg=connected cluster=default/prod`)
	conn := dialLocal(t, forward)
	say(t, conn, "hello")
	say(t, dialLocal(t, forward), "beside it")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v after the end, want an end", rest, err)
	}
	if got, _ := clitest.Get(t, status+"/readyz?cluster="+cluster); got != http.StatusOK {
		t.Errorf("got %d with an agent, want 200", got)
	}
}

// The status address has the page of package status, and what programs ask for.
func TestStatusAddress(t *testing.T) {
	dir := t.TempDir()
	p := startServer(t, dir)
	e := startAgent(t, newInvitation(t, dir, "--server", address(p, "listen")), echo(t), nil)
	receive(t, "connection", e.connected)
	p.Await(`msg=connected cluster=default/prod`)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/?q=" + cluster: "1 to 1 of 1 cluster", "/?q=" + host: "1 to 1 of 1 cluster", "/live": "Every cluster can be reached: 1.",
		"/page.js": "use strict", "/healthz": "ok", "/readyz": "ok", "/status": `"ready": true`,
	} {
		awaitBody(t, "http://"+address(p, "status")+path, want)
	}
}

// awaitBody waits until there is a text in what url answers: the page is up to
// two seconds old.
func awaitBody(t *testing.T, url, want string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(20 * time.Second); ; <-tick.C {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil && res.StatusCode == http.StatusOK && strings.Contains(string(body), want) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("GET %s: got %d, %v, %s; want %q in it", url, res.StatusCode, err, body, want)
		}
	}
}

// A connection that is open when the signal comes lives on, and the program
// waits for it; new ones are not taken.
func TestServerDrains(t *testing.T) {
	dir := t.TempDir()
	p := startServer(t, dir)
	e := startAgent(t, newInvitation(t, dir, "--server", address(p, "listen")), echo(t), nil)
	receive(t, "connection", e.connected)
	p.Await(`msg=connected`)
	conn := dialLocal(t, address(p, "forward"))
	say(t, conn, "before")
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop() }()
	p.Await(`msg=draining`)
	say(t, conn, "while it drains")
	select {
	case err := <-stopped:
		t.Fatalf("the program ended with a connection open: %v", err)
	default:
	}
	if got, _ := clitest.Get(t, "http://"+address(p, "status")+"/healthz"); got != http.StatusOK {
		t.Errorf("got %d from /healthz while it drains, want 200", got)
	}
	conn.Close()
	if err := receive(t, "end", stopped); err != nil {
		t.Errorf("got %v at the end", err)
	}
	if c, err := net.Dial("tcp", address(p, "forward")); err == nil {
		c.Close()
		t.Error("the listener is still there")
	}
}

// An open connection has no more than the grace.
func TestServerGrace(t *testing.T) {
	dir := t.TempDir()
	p := startServer(t, dir, "--grace", "50ms")
	e := startAgent(t, newInvitation(t, dir, "--server", address(p, "listen")), echo(t), nil)
	receive(t, "connection", e.connected)
	p.Await(`msg=connected`)
	conn := dialLocal(t, address(p, "forward"))
	say(t, conn, "before")
	if err := p.Stop(); err != nil {
		t.Errorf("got %v at the end", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want a reset", err)
	}
}

// Agents that come by WebSocket, through an outer TLS.
func TestServerWebSocket(t *testing.T) {
	ca := pki.NewCA("outer")
	dir, files := t.TempDir(), t.TempDir()
	cert, key := filepath.Join(files, "cert"), filepath.Join(files, "key")
	certPEM, keyPEM := pki.PEM(ca.Server("127.0.0.1"))
	for file, text := range map[string][]byte{cert: certPEM, key: keyPEM} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := startServer(t, dir, "--listen=", "--websocket", "127.0.0.1:0", "--websocket-cert", cert, "--websocket-key", key)
	inv := newInvitation(t, dir, "--server", "wss://"+address(p, "websocket")+"/agent")
	e := startAgent(t, inv, echo(t), func(a *tunnel.Agent) {
		a.WebSocketTLS = &tls.Config{RootCAs: ca.Pool()}
	})
	receive(t, "connection", e.connected)
	p.Await(`msg=connected`)
	conn := dialLocal(t, address(p, "forward"))
	say(t, conn, "hello")
	conn.Close()
	if err := p.Stop(); err != nil {
		t.Errorf("got %v at the end", err)
	}
}

// A client whose request has no end costs little, and is not heard to its end.
func TestServerWebSocketBoundsRequests(t *testing.T) {
	p := startServer(t, t.TempDir(), "--listen=", "--websocket", "127.0.0.1:0")
	conn, err := net.Dial("tcp", address(p, "websocket"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(4 * time.Second)) // a request may take 5
	if _, err = conn.Write([]byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 64<<10))); err == nil {
		_, err = io.ReadAll(conn)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want the connection closed", err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("got %v at the end", err)
	}
}

// What the commands write reaches a server that runs.
func TestCommandsBesideTheServer(t *testing.T) {
	dir := t.TempDir()
	output := func(stdin string, args ...string) {
		t.Helper()
		if err := run(t.Context(), append(args, "--state", dir), strings.NewReader(stdin), io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	p := startServer(t, dir, "--advertise", "203.0.113.1:1,wss://tunnel.example.com/")
	listen := address(p, "listen")
	if got := newInvitation(t, dir).Servers; !slices.Equal(got, []string{"203.0.113.1:1", "wss://tunnel.example.com/"}) {
		t.Errorf("got servers %q, want those that the server advertises", got)
	}
	output("first", "payload", cluster, "../name")
	e := startAgent(t, newInvitation(t, dir, "--server", listen), echo(t), nil)
	id := receive(t, "connection", e.connected)
	if got := receive(t, "payload", e.payloads); got != "../name=first" {
		t.Errorf("got payload %q when it connected", got)
	}
	output("second", "payload", cluster, "../name")
	// The first may come once more: an agent that connects gets what there is.
	for receive(t, "changed payload", e.payloads) != "../name=second" {
	}
	output("", "enroll", "default/other")
	output("other", "payload", "default/other", "name")
	p.Await(`msg=pushed`)
	output("", "revoke", id.Cluster, id.Agent)
	receive(t, "end of the session", e.disconnected)
	for {
		var refused *tunnel.Error
		if err := receive(t, "refusal", e.failed); errors.As(err, &refused) && refused.Code == tunnel.CodeRevoked {
			break
		}
	}
	for len(e.payloads) > 0 {
		if got := <-e.payloads; got == "name=other" {
			t.Errorf("got payload %q of another cluster", got)
		}
	}
}

func TestPayloadAtConnect(t *testing.T) {
	dir := t.TempDir()
	st, err := openDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.setPayload(t.Context(), cluster, tunnel.Payload{Name: "name", Data: []byte("data")}); err != nil {
		t.Fatal(err)
	}
	p := startServer(t, dir, "--watch", "1h")
	e := startAgent(t, newInvitation(t, dir, "--server", address(p, "listen")), "127.0.0.1:1", nil)
	if got := receive(t, "payload", e.payloads); got != "name=data" {
		t.Errorf("got payload %q", got)
	}
}

// A payload that an agent refuses is a warning, when it connects and later.
func TestPayloadRefused(t *testing.T) {
	dir := t.TempDir()
	payload := func(data string) {
		t.Helper()
		if err := run(t.Context(), []string{"payload", cluster, "name", "--state", dir}, strings.NewReader(data), io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	p := startServer(t, dir)
	listen := address(p, "listen") // there is a state
	inv := newInvitation(t, dir, "--server", listen)
	payload("first")
	startAgent(t, inv, "127.0.0.1:1", func(a *tunnel.Agent) {
		a.Payload = func(_ context.Context, p tunnel.Payload) error { return errors.New("no place for " + string(p.Data)) }
	})
	p.Await(`level=WARN msg="payload not confirmed" cluster=default/prod agent=\S+ name=name error=.*no place for first`)
	payload("second")
	p.Await(`level=WARN msg="payload not confirmed" cluster=default/prod name=name error=.*no place for second`)
	if got := p.Text(); strings.Contains(got, "msg=pushed") || strings.Contains(got, "msg=payload ") {
		t.Errorf("got %q, want no line that says that it was accepted", got)
	}
}

// What was opened before the listener that failed is closed.
func TestListenersAreClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	err = run(t.Context(), []string{"--state", t.TempDir(), "--listen", address, "--status", "192.0.2.1:1"}, nil, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--status") {
		t.Fatalf("got %v, want the error of --status", err)
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatalf("the listener for agents is still there: %v", err)
	}
	l.Close()
}

// A service that fails ends the program, and its error is the program's.
func TestServiceFails(t *testing.T) {
	st, err := openDir(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	server, err := st.server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late, end := context.WithCancel(t.Context())
	defer end()
	p := &program{log: slog.New(slog.DiscardHandler), events: newEvents(slog.New(slog.DiscardHandler)), state: st, server: server, every: time.Hour, late: late}
	p.watch = newWatcher(p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	broken := errors.New("broken")
	err = p.run(t.Context(), end, []service{
		{"status", l, func(net.Listener) error { return broken }},
		{"listen", l, func(net.Listener) error { <-late.Done(); return nil }},
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "status") {
		t.Errorf("got %v, want the error of the service", err)
	}
}

// An agent that looks for another replica is no news.
func TestRefusedLog(t *testing.T) {
	for code, want := range map[tunnel.Code]bool{tunnel.CodeHeld: false, tunnel.CodeRevoked: true} {
		var text bytes.Buffer
		newEvents(slog.New(slog.NewTextHandler(&text, nil))).refused(tunnel.Addr{Cluster: "x"}, &tunnel.Error{Op: "connect", Code: code})
		if got := strings.Contains(text.String(), "level=WARN msg=refused"); got != want {
			t.Errorf("%v: got %q, want a warning: %t", code, text.String(), want)
		}
	}
}
