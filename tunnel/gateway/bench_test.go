//go:build unix

package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// BenchmarkIdle measures what an idle connection costs: client and target are in
// this process too, each a bare connection without a goroutine.
func BenchmarkIdle(b *testing.B) {
	for _, d := range doors() {
		b.Run(d.name, func(b *testing.B) {
			n := min(5000, (raiseFiles(b)-200)/4) // each is four sockets
			for range b.N {
				bed := newBed(b, d, nil)
				client := d.client(b, bed.addr, "ann", secret)
				before := memory()
				conns := make([]net.Conn, 2*n)
				for i := range n {
					conns[2*i], conns[2*i+1] = bed.pairBy(client)
					<-bed.dialed
				}
				after := memory()
				b.ReportMetric(float64(after.heap-before.heap)/float64(n), "heapB/conn")
				b.ReportMetric(float64(after.stack-before.stack)/float64(n), "stackB/conn")
				b.ReportMetric(float64(after.rss-before.rss)/float64(n), "rssB/conn")
				for _, conn := range conns {
					conn.Close()
				}
			}
		})
	}
}

type usage struct{ heap, stack, rss int64 }

func memory() usage {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text, _ := os.ReadFile("/proc/self/statm")
	pages, _ := strconv.Atoi(strings.Fields(string(text) + " 0 0")[1])
	return usage{int64(m.HeapAlloc), int64(m.StackInuse), int64(pages) * int64(os.Getpagesize())}
}

// raiseFiles returns how many files may be open at most.
func raiseFiles(b *testing.B) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	return int(min(limit.Cur, 1<<20))
}

// BenchmarkRelay is a download of 64 MiB, for each door and for a bare relay.
func BenchmarkRelay(b *testing.B) {
	b.Run("bare", func(b *testing.B) { download(b, bareBed(b)) })
	for _, d := range doors() {
		b.Run(d.name, func(b *testing.B) { download(b, newBed(b, d, nil)) })
	}
}

// bareBed relays one connection and does nothing else.
func bareBed(b *testing.B) *bed {
	far := make(chan string, 1)
	bare := door{
		serve: func(_ *gateway.Gateway, ctx context.Context, l net.Listener) error {
			defer l.Close()
			client, err := l.Accept()
			if err != nil {
				return err
			}
			target, err := net.Dial("tcp", <-far)
			if err != nil {
				return err
			}
			relay.Relay(ctx, client, target)
			return nil
		},
		client: func(_ testing.TB, addr net.Addr, _, _ string) dialer.Dialer {
			return dialer.Func(func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", addr.String())
			})
		},
	}
	bed := newBed(b, bare, nil)
	far <- bed.far
	return bed
}

func download(b *testing.B, bed *bed) {
	client, target := bed.pair()
	carry(b, target, client)
}

// carry measures 64 MiB a time, and the CPU for them.
func carry(b *testing.B, from io.Writer, to io.Reader) {
	const size = 64 << 20
	block := make([]byte, 256<<10)
	b.SetBytes(size)
	began := cpu()
	for b.Loop() {
		go func() {
			for range size / len(block) {
				from.Write(block)
			}
		}()
		if _, err := io.CopyN(io.Discard, to, size); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpu()-began).Seconds()/float64(b.N)*1e9/size, "cpu-s/GB")
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(fmt.Sprint("getrusage: ", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
