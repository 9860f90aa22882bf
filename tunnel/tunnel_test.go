package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// testServer serves on 127.0.0.1 until the test ends.
func testServer(t *testing.T, s *tunnel.Server) (address string) {
	t.Helper()
	if s.Authority == nil {
		a, err := tunnel.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		s.Authority = a
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// testAgent runs an agent that is invited by s until the test ends or stop is
// called, and returns once it is connected.
func testAgent(t *testing.T, s *tunnel.Server, address, cluster string, a *tunnel.Agent) (stop func()) {
	t.Helper()
	inv, err := s.Invite(t.Context(), cluster, 0)
	if err != nil {
		t.Fatal(err)
	}
	inv.Servers = []string{address}
	a.Invitation = func(context.Context) (tunnel.Invitation, error) { return inv, nil }
	if a.Credentials == nil {
		a.Credentials = &tunnel.MemoryCredentials{}
	}
	connected := make(chan struct{}, 100)
	a.Hooks.Connected = func(string, tunnel.Identity) { connected <- struct{}{} }
	a.Hooks.Failed = func(server string, err error, retry time.Duration) {
		t.Logf("agent: %s: %v; again in %v", server, err, retry)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-connected:
	case <-time.After(20 * time.Second):
		t.Fatal("the agent does not connect")
	}
	return stop
}

func TestDial(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	go func() {
		for {
			c, err := target.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	up := make(chan struct{}, 1)
	s := &tunnel.Server{Hooks: tunnel.Hooks{Connected: func(tunnel.SessionInfo) { up <- struct{}{} }}}
	address := testServer(t, s)
	testAgent(t, s, address, "default/prod", &tunnel.Agent{Targets: tunnel.Targets{Allow: []string{target.Addr().String()}}})
	<-up
	conn, err := s.Dialer("default/prod").DialContext(t.Context(), "tcp", target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if string(got) != "hello" || err != nil {
		t.Errorf("got %q, %v, want hello", got, err)
	}
	conn.Close()
	_, err = s.Dialer("default/other").DialContext(t.Context(), "tcp", target.Addr().String())
	var e *tunnel.Error
	if !errors.As(err, &e) || e.Code != tunnel.CodeNoAgent {
		t.Errorf("got %v, want no agent", err)
	}
	_, err = s.Dialer("default/prod").DialContext(t.Context(), "tcp", "127.0.0.1:1")
	if !errors.As(err, &e) || e.Code != tunnel.CodeDenied {
		t.Errorf("got %v, want denied", err)
	}
	t.Logf("%+v", s.Status())
}
