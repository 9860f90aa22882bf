package carrier_test

import (
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Options of linux/tcp.h.
const userTimeout, notSentLow = 18, 25

// minUnsent is what package socket begins with.
const minUnsent = 128 << 10

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

func TestUnsentLimitFollowsTheRate(t *testing.T) {
	a, b := ends(t, tcp(0))
	agent, server := carriers(t, a, b)
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, server) })
	deadline := time.Now().Add(20 * time.Second)
	for option(t, a, notSentLow) == minUnsent && time.Now().Before(deadline) {
		for range 256 {
			flushing{agent}.Write(make([]byte, 64<<10))
		}
	}
	if got := option(t, a, notSentLow); got <= minUnsent {
		t.Errorf("got the mark %d on loopback, want more than %d", got, minUnsent)
	}
	agent.Close()
	wg.Wait()
}

// A wrapped connection is read another way than a socket.
func TestCarrierOverAWrapper(t *testing.T) {
	a, b := ends(t, tcp(0))
	agent, server := carriers(t, wrapped{a}, wrapped{b})
	var wg sync.WaitGroup
	wg.Go(func() { flushing{agent}.Write(make([]byte, 1<<20)) })
	if n := readAll(t, server, 1<<20); n != 1<<20 {
		t.Errorf("got %d bytes", n)
	}
	wg.Wait()
}
