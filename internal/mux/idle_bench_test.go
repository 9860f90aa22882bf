package mux_test

import (
	"net"
	"runtime"
	"testing"

	"github.com/causewayproject/causeway/internal/mux"
)

// quiet is a carrier that costs nothing, takes everything and gives nothing.
type quiet struct{ scripted }

func (c *quiet) Read([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}

func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// BenchmarkIdle is the memory, heap and stacks, of what does nothing: a
// session, and a stream of which each end has been used.
func BenchmarkIdle(b *testing.B) {
	b.Run("session", func(b *testing.B) {
		const n = 1000
		for b.Loop() {
			before := inUse()
			var all []*mux.Session
			for range n {
				c := &quiet{scripted{closed: make(chan struct{})}}
				all = append(all, mux.Client(c, nil))
			}
			b.ReportMetric((inUse()-before)/n, "B/session")
			for _, s := range all {
				s.Close()
			}
		}
	})
	b.Run("stream", func(b *testing.B) {
		const n = 1000
		for b.Loop() {
			client, server := sessions(b, tcpPair, nil)
			before := inUse()
			for range n {
				opened, accepted := connect(b, client, server, "x")
				read(b, accepted, "x")
				accepted.Write([]byte("x"))
				read(b, opened, "x")
			}
			b.ReportMetric((inUse()-before)/(2*n), "B/stream")
			client.Close()
			server.Close()
		}
	})
}
