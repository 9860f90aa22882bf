package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel/egress"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func command(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), args, strings.NewReader(stdin), &out, io.Discard)
	return out.String(), err
}

// echo is a target.
func echo(t *testing.T) string {
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

// What config prints, a gateway serves, and dial goes by.
func TestBothDirections(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "egress.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	target := echo(t)
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Grace: -1, Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		if r.Address != "192.0.2.10:10250" {
			t.Errorf("asked for %s, want 192.0.2.10:10250", r.Address)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", target)
	}}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.ServeConnect(ctx, l) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	text, err := command(t, "", "config", "-socket", socket)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "egress.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := command(t, "hello", "dial", "-config", path, "192.0.2.10:10250"); got != "hello" || err != nil {
		t.Errorf("got %q, %v; want hello", got, err)
	}
	// Without a selection, the target itself.
	if got, err := command(t, "hello", "dial", "-config", path, "-selection", "etcd", target); got != "hello" || err != nil {
		t.Errorf("etcd: got %q, %v; want hello", got, err)
	}
}

func TestConfigTLS(t *testing.T) {
	text, err := command(t, "", "config", "-url", "https://127.0.0.1:8131", "-ca", "/a", "-cert", "/b", "-key", "/c", "-selection", "cluster", "-selection", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	c, err := egress.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Selections) != 2 || c.Selections[1].Name != egress.Etcd || *c.Selections[0].Connection.Transport.TCP.TLSConfig != (egress.TLS{CABundle: "/a", ClientCert: "/b", ClientKey: "/c"}) {
		t.Errorf("got\n%s", text)
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{
		nil, {"serve"}, {"config"}, {"config", "-socket", "/a", "-url", "https://b:1"}, {"config", "-socket", "/a", "-ca", "/b"},
		{"config", "-socket", "/a", "more"}, {"dial", "a:1"}, {"dial", "-config", "/a"},
	} {
		if out, err := command(t, "", args...); err == nil {
			t.Errorf("%q: got %q, want an error", args, out)
		}
	}
	var field *egress.FieldError
	if _, err := command(t, "", "config", "-socket", "a"); !errors.As(err, &field) {
		t.Errorf("relative socket: got %v, want the field", err)
	}
}
