package carrier_test

import (
	"io"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/sockettest"
)

// Options of linux/tcp.h.
const userTimeout, notSentLow = 18, 25

// minUnsent is what package socket begins with.
const minUnsent = 16 << 10

func TestUnsentLimitFollowsTheRate(t *testing.T) {
	a, b := ends(t, tcp())
	agent, server := carriers(t, a, b)
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, server) })
	deadline := time.Now().Add(20 * time.Second)
	for sockettest.Option(t, a, notSentLow) == minUnsent && time.Now().Before(deadline) {
		for range 256 {
			flushing{agent}.Write(make([]byte, 64<<10))
		}
	}
	if got := sockettest.Option(t, a, notSentLow); got <= minUnsent {
		t.Errorf("got the mark %d on loopback, want more than %d", got, minUnsent)
	}
	agent.Close()
	wg.Wait()
}

// A wrapped connection is read another way than a socket.
func TestCarrierOverAWrapper(t *testing.T) {
	a, b := ends(t, tcp())
	agent, server := carriers(t, sockettest.Wrapped{Conn: a}, sockettest.Wrapped{Conn: b})
	var wg sync.WaitGroup
	wg.Go(func() { flushing{agent}.Write(make([]byte, 1<<20)) })
	if n := readAll(t, server, 1<<20); n != 1<<20 {
		t.Errorf("got %d bytes", n)
	}
	wg.Wait()
}
