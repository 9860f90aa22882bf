//go:build unix

package relay_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/relay"
)

// hidden is a connection without its ReadFrom and WriteTo.
type hidden struct{ net.Conn }

func (h hidden) CloseWrite() error { return h.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// ioCopy is what one writes by hand, with a buffer of 32 KiB.
func ioCopy(_ context.Context, a, b net.Conn) relay.Result {
	ended := make(chan struct{})
	go func() { defer close(ended); io.Copy(hidden{a}, hidden{b}) }()
	n, err := io.Copy(hidden{b}, hidden{a})
	b.(interface{ CloseWrite() error }).CloseWrite()
	<-ended
	return relay.Result{AToB: n, Err: err}
}

// BenchmarkRelay says beside the time how much of the CPU a gigabyte costs,
// the writing and the reading of it included.
func BenchmarkRelay(b *testing.B) {
	benchmarks := []struct {
		name  string
		kind  maker
		relay func(context.Context, net.Conn, net.Conn) relay.Result
	}{
		{"tcp", tcp, relay.Relay},
		{"tcp by hand", tcp, ioCopy},
		{"buffered", func(t testing.TB) (net.Conn, net.Conn) {
			far, near := tcp(t)
			return far, hidden{near}
		}, relay.Relay},
		{"tls", overTLS, relay.Relay},
		{"tls by hand", overTLS, ioCopy},
	}
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			farA, nearA := bm.kind(b)
			farB, nearB := bm.kind(b)
			farA.SetDeadline(time.Time{})
			farB.SetDeadline(time.Time{})
			done := make(chan relay.Result, 1)
			go func() { done <- bm.relay(b.Context(), nearA, nearB) }()
			buf := make([]byte, 1<<20)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			read := make(chan int64, 1)
			go func() {
				n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{farB}, make([]byte, 1<<18))
				farB.Close()
				read <- n
			}()
			var size int64
			before := cpu()
			for b.Loop() {
				n, err := farA.Write(buf)
				if err != nil {
					b.Fatal(err)
				}
				size += int64(n)
			}
			farA.(interface{ CloseWrite() error }).CloseWrite()
			if n := <-read; n != size {
				b.Errorf("got %d bytes of %d", n, size)
			}
			b.ReportMetric((cpu()-before).Seconds()/float64(size)*1e9, "cpu-s/GB")
			<-done
		})
	}
}

// cpu is what this process has used.
func cpu() time.Duration {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
