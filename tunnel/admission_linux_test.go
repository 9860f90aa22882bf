package tunnel_test

import (
	"math"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// maxStranger is how much heap a client without a certificate that is accepted
// may cost.
const maxStranger = 24 << 10

// What a stranger costs, whatever it sends.
func TestStrangersMemory(t *testing.T) {
	const n = 200
	for _, tt := range []struct{ name, kind string }{
		{"silent", "tcp"},
		{"half hello", "tcp"},
		{"hello", "tcp"},
		{"4 KiB of a hello", "tcp"},
		{"15 KiB of a hello", "tcp"},
		{"long hello", "tcp"},
		{"certificate of 200 KiB", "tcp"},
		{"half of a certificate", "tcp"},
		{"certificate without a proof", "tcp"},
		{"340 key shares", "tcp"},
		{"700 key shares", "tcp"},
		{"1,500 protocols", "tcp"},
		{"800 URIs, no proof", "tcp"},
		{"800 URIs", "tcp"},
		{"2,600 URIs", "tcp"},
		{"no certificate", "tcp"},
		{"60,000 SYN", "tcp"},
		{"60,000 SYN with a certificate", "tcp"},
		{"60,000 SYN of a peer", "tcp"},
		{"data", "tcp"},
		{"pings", "tcp"},
		{"HELLO that claims much", "tcp"},
		{"ENROLL that claims much", "tcp"},
		{"ENROLL of 31 KiB", "tcp"},
		{"half a request", "websocket listener"},
		{"a request of 60 KiB", "websocket listener"},
		{"many short headers", "websocket listener"},
		{"websocket, silent", "websocket listener"},
		{"websocket, half hello", "websocket listener"},
		{"websocket, 60,000 SYN", "websocket listener"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var refused atomic.Int64
			b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Refused: func(net.Addr, error) { refused.Add(1) }}})
			address := b.serveKind(tt.kind)
			heap, stacks := liveMemory()
			strangers := attack(t, tt.name, address, "", n, false)
			// What they hold is in each sample. Others have as well what is being
			// looked at, of a few at once, and let go.
			var costs, stack int64 = math.MaxInt64, 0
			for i := 0; i < 10 && costs > maxStranger; i++ {
				if i > 0 {
					time.Sleep(20 * time.Millisecond) // it is sampled
				}
				if h, s := liveMemory(); (h-heap)/n < costs {
					costs, stack = (h-heap)/n, (s-stacks)/n
				}
			}
			strangers.stop()
			t.Logf("a stranger costs %d bytes of heap and %d of stacks; %d refused", costs, stack, refused.Load())
			if costs > maxStranger {
				t.Errorf("a stranger costs %d bytes of heap, want %d at most", costs, maxStranger)
			}
		})
	}
}

// liveMemory is what lives in the heap, and what stacks take.
func liveMemory() (heap, stacks int64) {
	runtime.GC()
	runtime.GC() // pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}

// serveKind has the server serve a listener of the kind on loopback, too.
func (b *bed) serveKind(kind string) (address string) {
	b.t.Helper()
	l := listen(b.t)
	if kind != "tcp" {
		l = tunnel.ListenWebSocket(l, nil)
	}
	b.serveAlso(l)
	return l.Addr().String()
}
