//go:build unix

package tunnel_test

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// What a hop costs: the same agent, over loopback and TLS, by its own replica
// and by another one. All run in this process.
func BenchmarkForward(b *testing.B) {
	h := newHop(b)
	for _, way := range []struct {
		name string
		bed  *bed
	}{{"local", h.far}, {"forwarded", h.near}} {
		b.Run("dial/"+way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				conn, err := way.bed.dial(h.target.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				target, err := h.target.Accept()
				if err != nil {
					b.Fatal(err)
				}
				conn.Close()
				target.Close()
			}
		})
		for _, early := range []bool{false, true} { // until the target has the first bytes
			name := "first bytes/"
			if early {
				name = "early bytes/"
			}
			hello := make([]byte, 1700)
			b.Run(name+way.name, func(b *testing.B) {
				for b.Loop() {
					d := way.bed.s.Dialer(testCluster)
					var conn net.Conn
					var err error
					if early {
						conn, err = d.DialEarly(b.Context(), "tcp", h.target.Addr().String(), hello)
					} else if conn, err = d.DialContext(b.Context(), "tcp", h.target.Addr().String()); err == nil {
						_, err = conn.Write(hello)
					}
					if err != nil {
						b.Fatal(err)
					}
					target, err := h.target.Accept()
					if err == nil {
						_, err = io.ReadFull(target, make([]byte, len(hello)))
					}
					if err != nil {
						b.Fatal(err)
					}
					conn.Close()
					target.Close()
				}
			})
		}
		for _, dir := range []string{"down", "up"} {
			b.Run(dir+"/"+way.name, func(b *testing.B) {
				conn, target := h.pair(way.bed)
				from, to := conn, target
				if dir == "down" {
					from, to = target, conn
				}
				stream(b, from, to)
			})
		}
	}
}

// stream sends 64 KiB at a time.
func stream(b *testing.B, from, to net.Conn) {
	const size = 64 << 10
	data := make([]byte, size)
	read := make(chan struct{})
	go func() {
		defer close(read)
		if n, err := io.CopyN(io.Discard, struct{ io.Reader }{to}, int64(b.N+1)*size); err != nil {
			b.Errorf("got %d bytes, %v", n, err)
		}
	}()
	cpu := used()
	b.SetBytes(size)
	b.ResetTimer()
	for range b.N + 1 {
		if _, err := from.Write(data); err != nil {
			b.Error(err)
			return
		}
	}
	<-read
	b.StopTimer()
	b.ReportMetric((used()-cpu).Seconds()/(float64(b.N)*size/1e9), "cpu-s/GB")
}

// used is the processor time of the process.
func used() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
