package tunnel_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/internal/test/sockettest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// Options of linux/tcp.h.
const userTimeout, notSentLow = 18, 25

// How much unsent data the kernel takes of a session at first, and of others.
const minUnsent, tunedUnsent = 16 << 10, 128 << 10

func TestTCPOptions(t *testing.T) {
	check := func(t *testing.T, conn net.Conn, unsent int) {
		t.Helper()
		if got := sockettest.Option(t, conn, userTimeout); got != 0 { // it ends sessions whose bytes flow
			t.Errorf("user timeout: got %d ms, want none", got)
		}
		if got := sockettest.Option(t, conn, notSentLow); got != unsent {
			t.Errorf("unsent limit: got %d, want %d", got, unsent)
		}
		if got := sockettest.Option(t, conn, syscall.TCP_NODELAY); got == 0 {
			t.Error("small writes are delayed")
		}
	}
	t.Run("another listener", func(t *testing.T) {
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := socket.TuneListener(wrappingListener{plain})
		defer l.Close()
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		check(t, conn, tunedUnsent)
	})
	t.Run("below a wrapper", func(t *testing.T) {
		b, address := newTCPBed(t, &tunnel.Server{})
		dialed := make(chan net.Conn, 10)
		b.agent(&tunnel.Agent{Servers: []string{address}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			dialed <- conn
			return sockettest.Wrapped{Conn: conn}, err
		}})
		<-dialed // the enrolment
		check(t, <-dialed, minUnsent)
	})
	t.Run("a target", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		conn, err := (&tunnel.Targets{Allow: []string{"127.0.0.1:*"}}).DialTarget(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		check(t, conn, tunedUnsent)
	})
}

// wrappingListener is a listener of a program.
type wrappingListener struct{ net.Listener }

func (l wrappingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return sockettest.Wrapped{Conn: conn}, err
}
