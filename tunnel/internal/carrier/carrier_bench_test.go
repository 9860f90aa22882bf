//go:build unix

package carrier_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
)

// BenchmarkCarrier sends 64 KiB at a time from one end to the other, beside
// crypto/tls alone on the same transport. "stock" is TCP as Go has it. CPU
// seconds and system calls are those of both ends.
func BenchmarkCarrier(b *testing.B) {
	b.Run("tls/stock", func(b *testing.B) {
		x, y := stock(b)
		throughput(b, tls.Client(x, pki.ClientTLS()), tls.Server(y, pki.ServerTLS()), func() error { return nil })
	})
	b.Run("carrier/stock", func(b *testing.B) {
		x, y := stock(b)
		agent, server := carriers(b, x, y)
		throughput(b, agent, server, agent.Flush)
	})
	for _, tt := range transports {
		b.Run("tls/"+tt.name, func(b *testing.B) {
			x, y := ends(b, tt)
			throughput(b, tls.Client(x, pki.ClientTLS()), tls.Server(y, pki.ServerTLS()), func() error { return nil })
		})
		b.Run("carrier/"+tt.name, func(b *testing.B) {
			x, y := ends(b, tt)
			agent, server := carriers(b, x, y)
			throughput(b, agent, server, agent.Flush)
		})
	}
}

// stock is a TCP connection without our options.
func stock(b *testing.B) (agent, server net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if agent, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	return agent, server
}

func throughput(b *testing.B, from, to net.Conn, flush func() error) {
	const size = 64 << 10
	data := make([]byte, size)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{io.LimitReader(to, int64(b.N+1)*size)}, make([]byte, size)); err != nil {
			b.Error(err)
		}
	})
	send := func() {
		if _, err := from.Write(data); err != nil {
			b.Fatal(err)
		}
		if err := flush(); err != nil {
			b.Fatal(err)
		}
	}
	send() // and the handshake
	cpu, calls := used(), syscalls(b)
	b.SetBytes(size)
	b.ResetTimer()
	for range b.N {
		send()
	}
	wg.Wait()
	b.StopTimer()
	gb := float64(b.N) * size / 1e9
	b.ReportMetric((used()-cpu).Seconds()/gb, "cpu-s/GB")
	b.ReportMetric(float64(syscalls(b)-calls)/gb, "syscalls/GB")
	from.Close()
	to.Close()
}

// used is the processor time of the process.
func used() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// syscalls counts the reads and writes of the process.
func syscalls(b *testing.B) (n int) {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		var name string
		var count int
		if fmt.Sscan(string(line), &name, &count); name == "syscr:" || name == "syscw:" {
			n += count
		}
	}
	return n
}

var _ net.Conn = (*carrier.Conn)(nil)
