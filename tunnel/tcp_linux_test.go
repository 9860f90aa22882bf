package tunnel_test

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Options of linux/tcp.h.
const userTimeout, notSentLow = 18, 25

// option returns a TCP option of the socket below conn.
func option(t *testing.T, conn net.Conn, opt int) int {
	t.Helper()
	for {
		n, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = n.NetConn()
	}
	rc, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var value int
	rc.Control(func(fd uintptr) {
		if value, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, opt); err != nil {
			t.Error(err)
		}
	})
	return value
}

// wrapped is what an embedder's dial function may return.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

func TestTCPOptions(t *testing.T) {
	check := func(t *testing.T, conn net.Conn, timeout time.Duration) {
		t.Helper()
		if got, want := option(t, conn, userTimeout), int(timeout/time.Millisecond); got != want {
			t.Errorf("user timeout: got %d ms, want %d", got, want)
		}
		if got := option(t, conn, notSentLow); got != tunnel.MinLowMark {
			t.Errorf("not-sent low mark: got %d, want %d", got, tunnel.MinLowMark)
		}
		if got := option(t, conn, syscall.TCP_NODELAY); got == 0 {
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
	t.Run("a listener of package net", func(t *testing.T) {
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := tunnel.Tuned(plain)
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
			return wrapped{conn}, err
		}
		conn, err := tunnel.TCP{}.Dial(testContext(t), dial, server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		check(t, conn, 30*time.Second)
	})
}

func TestLowMarkFollowsTheRate(t *testing.T) {
	const KiB, MiB = 1 << 10, 1 << 20
	for _, tt := range []struct {
		sent int
		took time.Duration
		want int
	}{
		{4 * MiB, 3 * time.Second, 128 * KiB}, // 10 Mbit/s
		{4 * MiB, 160 * time.Millisecond, 256 * KiB},
		{4 * MiB, 161 * time.Millisecond, 128 * KiB},
		{4 * MiB, 4 * time.Millisecond, 4 * MiB},
		{4 * MiB, 40 * time.Millisecond, MiB},
		{4 * MiB, 1000 * time.Hour, 128 * KiB},
		{4 * MiB, 0, 4 * MiB},
	} {
		if got := tunnel.LowMarkFor(tt.sent, tt.took); got != tt.want {
			t.Errorf("%d bytes in %v: got %d, want %d", tt.sent, tt.took, got, tt.want)
		}
	}

	a, b := ends(t, tunnel.TCP{}, "127.0.0.1:0")
	agent, server := carriers(t, a, b)
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, server) })
	deadline := time.Now().Add(20 * time.Second)
	for option(t, a, notSentLow) == tunnel.MinLowMark && time.Now().Before(deadline) {
		for range 256 {
			flushing{agent}.Write(make([]byte, 64*KiB))
		}
	}
	if got := option(t, a, notSentLow); got <= tunnel.MinLowMark {
		t.Errorf("got the mark %d on loopback, want more than %d", got, tunnel.MinLowMark)
	}
	agent.Close()
	wg.Wait()
}

// A wrapped connection is read another way than a socket.
func TestCarrierOverAWrapper(t *testing.T) {
	a, b := ends(t, tunnel.TCP{}, "127.0.0.1:0")
	agent, server := carriers(t, wrapped{a}, wrapped{b})
	var wg sync.WaitGroup
	wg.Go(func() { flushing{agent}.Write(make([]byte, 1<<20)) })
	if n := readAll(t, server, 1<<20); n != 1<<20 {
		t.Errorf("got %d bytes", n)
	}
	wg.Wait()
}
