package linktest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/linktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a link over TCP with a listener as its target.
type bed struct {
	t      *testing.T
	link   *linktest.Link
	target *net.TCPListener
	addr   string
}

func newBed(t *testing.T, c linktest.Config) *bed {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	link := linktest.New(c)
	addr, err := link.Listen(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		link.Close()
		l.Close()
	})
	return &bed{t, link, l.(*net.TCPListener), addr}
}

func (b *bed) dial() net.Conn {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.own(conn)
}

func (b *bed) accept() net.Conn {
	b.t.Helper()
	b.target.SetDeadline(time.Now().Add(20 * time.Second))
	conn, err := b.target.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	return b.own(conn)
}

func (b *bed) own(conn net.Conn) net.Conn {
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	b.t.Cleanup(func() { conn.Close() })
	return conn
}

// open returns the ends of a connection that works.
func (b *bed) open() (client, target net.Conn) {
	b.t.Helper()
	client, target = b.dial(), b.accept()
	send(b.t, client, "hello")
	expect(b.t, target, "hello")
	return client, target
}

// piped is a connection over a new link in memory.
func piped(t *testing.T, c linktest.Config) (client, target net.Conn, link *linktest.Link) {
	link = linktest.New(c)
	client, target = join(t, link)
	t.Cleanup(func() { link.Close() })
	return client, target, link
}

func join(t *testing.T, link *linktest.Link) (client, target net.Conn) {
	client, near := net.Pipe()
	target, far := net.Pipe()
	link.Join(near, far)
	t.Cleanup(func() { client.Close(); target.Close() })
	return client, target
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

func expectReset(t testing.TB, conn net.Conn) (n int64) {
	t.Helper()
	n, err := io.Copy(io.Discard, conn)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %d bytes, %v; want a reset", n, err)
	}
	return n
}

// expectSilence looks for a moment only: what is not to come does not come
// later either, but on a very slow machine.
func expectSilence(t testing.TB, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	defer conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v; want silence", n, err)
	}
}
