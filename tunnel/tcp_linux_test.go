package tunnel_test

import (
	"context"
	"net"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/sockettest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// Options of linux/tcp.h.
const userTimeout, notSentLow = 18, 25

// minUnsent is how much unsent data the kernel takes at first.
const minUnsent = 128 << 10

func TestTCPOptions(t *testing.T) {
	check := func(t *testing.T, conn net.Conn, timeout time.Duration) {
		t.Helper()
		if got, want := sockettest.Option(t, conn, userTimeout), int(timeout/time.Millisecond); got != want {
			t.Errorf("user timeout: got %d ms, want %d", got, want)
		}
		if got := sockettest.Option(t, conn, notSentLow); got != minUnsent {
			t.Errorf("unsent limit: got %d, want %d", got, minUnsent)
		}
		if got := sockettest.Option(t, conn, syscall.TCP_NODELAY); got == 0 {
			t.Error("small writes are delayed")
		}
	}
	for _, tt := range []struct{ set, want time.Duration }{
		{0, 30 * time.Second}, {5 * time.Second, 5 * time.Second}, {-1, 0}, {time.Microsecond, time.Millisecond},
	} {
		a, b := ends(t, tunnel.TCP{UserTimeout: tt.set}, "127.0.0.1:0")
		check(t, a, tt.want)
		check(t, b, tt.want)
	}
	for _, tt := range transports[1:] {
		t.Run(tt.name, func(t *testing.T) {
			a, b := ends(t, tt.transport(), tt.listen)
			check(t, a, 30*time.Second)
			check(t, b, 30*time.Second)
		})
	}
	t.Run("another listener", func(t *testing.T) {
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := socket.TuneListener(wrappingListener{plain}, 0)
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
		check(t, conn, 30*time.Second)
	})
	t.Run("below a wrapper", func(t *testing.T) {
		server := httptest.NewServer(nil)
		defer server.Close()
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return sockettest.Wrapped{Conn: conn}, err
		}
		conn, err := tunnel.TCP{}.Dial(testContext(t), dial, server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		check(t, conn, 30*time.Second)
	})
}

// wrappingListener is a listener of a program.
type wrappingListener struct{ net.Listener }

func (l wrappingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return sockettest.Wrapped{Conn: conn}, err
}
