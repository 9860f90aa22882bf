package dialer_test

import (
	"context"
	"io"
	"log"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

func TestMain(m *testing.M) {
	if os.Getenv(benchProxyEnv) != "" {
		benchProxy()
		return
	}
	goleak.VerifyTestMain(m)
}

// target is an address that nothing in these tests dials: only proxies are
// asked for it.
const target = "192.0.2.10:6443"

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve runs handle for each connection until the test ends, and returns the
// address.
func serve(t testing.TB, l net.Listener, handle func(context.Context, net.Conn)) string {
	t.Helper()
	s := proxytest.Serve(l, handle)
	t.Cleanup(s.Close)
	return s.Addr()
}

// closing counts the connections that are open.
type closing struct {
	dialer.Direct
	t     testing.TB
	conns chan net.Conn
}

// checked returns a forward Dialer, and at the test's end fails it if one of
// its connections was not closed.
func checked(t testing.TB) dialer.Dialer {
	t.Helper()
	c := &closing{t: t, conns: make(chan net.Conn, 1000)}
	t.Cleanup(func() {
		close(c.conns)
		for conn := range c.conns {
			if err := conn.SetDeadline(time.Time{}); err == nil {
				t.Errorf("connection to %v was left open", conn.RemoteAddr())
				conn.Close()
			}
		}
	})
	return c
}

func (c *closing) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.Direct.DialContext(ctx, network, address)
	if err == nil {
		c.conns <- conn
	}
	return conn, err
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// echo is a target.
func echo(_ context.Context, conn net.Conn) { io.Copy(conn, conn) }

// hold keeps a connection until the other side or the test ends it.
func hold(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	io.Copy(io.Discard, conn)
}

var discardLog = log.New(io.Discard, "", 0)
