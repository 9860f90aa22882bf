package egress_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is an address that nothing in these tests dials: only proxies are
// asked for it.
const target = "192.0.2.10:10250"

// serve serves on l until the test ends.
func serve(t *testing.T, l net.Listener, handle func(context.Context, net.Conn)) string {
	t.Helper()
	s := proxytest.Serve(l, handle)
	t.Cleanup(s.Close)
	return s.Addr()
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// toEcho is how a proxy dials, whatever it is asked for.
func toEcho(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	echo := serve(t, listen(t, "tcp", "127.0.0.1:0"), func(_ context.Context, conn net.Conn) { io.Copy(conn, conn) })
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", echo)
	}
}

// exchange dials the target and has a word sent back.
func exchange(t *testing.T, d dialer.Dialer, address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != "hello" {
		t.Errorf("got %q back, want hello", got)
	}
	return nil
}

// write stores a file and returns its path.
func write(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tlsProxy is a proxy that wants a certificate of clients' authority.
func tlsProxy(t *testing.T, config func() *tls.Config, log func(proxytest.Request)) (address string) {
	return serve(t, tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return config(), nil },
	}), (&proxytest.HTTP{Dial: toEcho(t), Log: log}).Handle)
}

func mutual(server, clients *pki.CA) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{server.Server("127.0.0.1")},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients.Pool(),
	}
}
