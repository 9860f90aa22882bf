package relay_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/internal/test/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// maker makes a connection: the test's end and the relay's.
type maker = func(testing.TB) (far, near net.Conn)

// linked returns the two ends of a connection of the network, tcp or unix.
func linked(t testing.TB, network string) (far, near net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err = net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close(); near.Close() })
	far.SetDeadline(time.Now().Add(20 * time.Second))
	return far, near
}

func tcp(t testing.TB) (far, near net.Conn)  { return linked(t, "tcp") }
func unix(t testing.TB) (far, near net.Conn) { return linked(t, "unix") }

var (
	ca   = pki.NewCA("relay")
	cert = ca.Server("relay.test")
)

func overTLS(t testing.TB) (far, near net.Conn) {
	far, near = tcp(t)
	return tls.Client(far, &tls.Config{RootCAs: ca.Pool(), ServerName: "relay.test"}),
		tls.Server(near, &tls.Config{Certificates: []tls.Certificate{cert}})
}

// stream is a connection with what the tunnel's have.
func stream(t testing.TB) (far, near net.Conn) {
	far, near = tcp(t)
	return far, &fakeStream{TCPConn: near.(*net.TCPConn)}
}

type fakeStream struct {
	*net.TCPConn
	code, to, from int // of Reset, and how often DeliverTo and ReadFrom were called
}

func (s *fakeStream) Reset(code uint32) error {
	s.code = int(code)
	return s.SetLinger(0)
}

func (s *fakeStream) DeliverTo(conn net.Conn) (int64, error) {
	s.to++
	return io.Copy(conn, s.TCPConn)
}

func (s *fakeStream) ReadFrom(r io.Reader) (int64, error) {
	s.from++
	return io.Copy(s.TCPConn, r)
}

// start relays between the near ends.
func start(ctx context.Context, a, b net.Conn) <-chan relay.Result {
	done := make(chan relay.Result, 1)
	go func() { done <- relay.Relay(ctx, a, b) }()
	return done
}

func result(t testing.TB, done <-chan relay.Result) relay.Result {
	t.Helper()
	select {
	case res := <-done:
		return res
	case <-time.After(20 * time.Second):
		t.Fatal("the relay does not end")
		panic("unreachable")
	}
}

func send(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got[:n], err, want)
	}
}

func expectEnd(t testing.TB, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("got %d bytes, %v; want EOF", n, err)
	}
}

func closeWrite(t testing.TB, conn net.Conn) {
	t.Helper()
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}
