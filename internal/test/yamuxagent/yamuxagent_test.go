package yamuxagent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = "default/prod"

type server struct {
	*tunnel.Server
	listener
	connected chan tunnel.SessionInfo
}

// listener keeps what it accepts.
type listener struct {
	net.Listener
	carriers chan net.Conn
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.carriers <- conn
	}
	return conn, err
}

func startServer(t *testing.T) *server {
	t.Helper()
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{listener: listener{l, make(chan net.Conn, 10)}, connected: make(chan tunnel.SessionInfo, 10)}
	s.Server = &tunnel.Server{Authority: authority, Hooks: tunnel.Hooks{Connected: func(i tunnel.SessionInfo) { s.connected <- i }}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), s.listener) }()
	t.Cleanup(func() {
		s.Server.Close()
		<-served
	})
	return s
}

// dial dials through the agent.
func (s *server) dial(t *testing.T, address string) (net.Conn, error) {
	t.Helper()
	return s.Dialer(cluster).DialContext(t.Context(), "tcp", address)
}

func (s *server) await(t *testing.T) {
	t.Helper()
	select {
	case <-s.connected:
	case <-time.After(time.Minute):
		t.Fatal("no agent connects")
	}
}

// startAgent runs the agent with an invitation until the test ends, and
// returns when it is connected.
func (s *server) startAgent(t *testing.T, allow ...string) {
	t.Helper()
	inv, err := s.Invite(t.Context(), cluster, 0)
	if err != nil {
		t.Fatal(err)
	}
	inv.Servers = []string{s.Addr().String()}
	file := filepath.Join(t.TempDir(), "invitation")
	if err := os.WriteFile(file, []byte(inv.Reveal()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- runAgent(ctx, file, allow) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("runAgent: %v", err)
		}
	})
	s.await(t)
}

func TestAgent(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}))
	defer web.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	target, refused := web.Listener.Addr().String(), closed.Listener.Addr().String()
	const nowhere = "no-such-host.invalid:80"

	s := startServer(t)
	s.startAgent(t, target, refused, nowhere)

	t.Run("HTTP", func(t *testing.T) {
		transport := &http.Transport{DialContext: s.Dialer(cluster).DialContext}
		defer transport.CloseIdleConnections()
		body := io.LimitReader(zeros{}, 3<<20) // many windows
		res, err := (&http.Client{Transport: transport}).Post("http://"+target, "", body)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if n, err := io.Copy(io.Discard, res.Body); n != 3<<20 || err != nil {
			t.Errorf("got %d bytes, %v, want %d", n, err, 3<<20)
		}
	})
	for _, tt := range []struct {
		name, address string
		code          tunnel.Code
	}{
		{"refused", refused, tunnel.CodeRefused},
		{"not allowed", "127.0.0.1:22", tunnel.CodeDenied},
		{"no such name", nowhere, tunnel.CodeNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.dial(t, tt.address)
			var e *tunnel.Error
			if !errors.As(err, &e) || e.Code != tt.code {
				t.Errorf("got %v, want code %v", err, tt.code)
			}
		})
	}
	// What was refused leaves no half-open stream at the server.
	for streams := 1; streams > 0; time.Sleep(time.Millisecond) {
		if t.Context().Err() != nil {
			t.Fatal("streams are left")
		}
		streams = s.Status().Clusters[0].Sessions[0].Streams
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Each direction of a connection ends by itself.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn) // to the client's end
		got <- string(all)
		io.WriteString(conn, "answer")
	}()
	s := startServer(t)
	s.startAgent(t, l.Addr().String())
	conn, err := s.dial(t, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "question")
	conn.(interface{ CloseWrite() error }).CloseWrite()
	if answer, err := io.ReadAll(conn); string(answer) != "answer" || err != nil {
		t.Errorf("got %q, %v, want the answer and its end", answer, err)
	}
	if question := <-got; question != "question" {
		t.Errorf("the target got %q", question)
	}
}

// TestBurst: yamux resets what comes when 256 streams wait to be accepted.
func TestBurst(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	s := startServer(t)
	s.startAgent(t, l.Addr().String())
	for _, dials := range []int{200, 256, 257, 950} {
		failed := make(chan error, dials)
		for range dials {
			go func() {
				conn, err := s.Dialer(cluster).DialContext(t.Context(), "tcp", l.Addr().String())
				if err == nil {
					defer conn.Close()
				}
				failed <- err
			}()
		}
		for range dials {
			if err := <-failed; err != nil {
				t.Errorf("got %v, want all %d to be dialed", err, dials)
			}
		}
	}
}

// A session that breaks is no end of a target's connection, though yamux calls
// it so; and the agent connects again.
func TestCut(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := startServer(t)
	s.startAgent(t, l.Addr().String())
	conn, err := s.dial(t, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	target, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	for len(s.carriers) > 0 {
		(<-s.carriers).Close()
	}
	if _, err := io.ReadAll(target); err == nil {
		t.Error("the target read an end, want a reset")
	}
	s.await(t)
}

// The file may be what enroll prints by default, a command that holds the token.
func TestNoInvitation(t *testing.T) {
	for _, content := range []string{
		"CAUSEWAY_SERVERS=192.0.2.1:1 CAUSEWAY_TOKEN=causeway1.s3cr3t CAUSEWAY_PIN=sha256:00 causeway-agent -state ./agent-state\n",
		"CAUSEWAY_SERVERS=192.0.2.1:1\nCAUSEWAY_TOKEN=s3cr3t%\nCAUSEWAY_PIN=sha256:00\n",
		"",
	} {
		file := filepath.Join(t.TempDir(), "invitation")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := runAgent(t.Context(), file, nil); !errors.Is(err, errNoInvitation) {
			t.Errorf("got %v of %q, want %v", err, content, errNoInvitation)
		}
	}
}
