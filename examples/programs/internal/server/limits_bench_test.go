//go:build unix

package server

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// sink returns the address of a target that takes all bytes.
func sink(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) })
	b.Cleanup(s.Close)
	return s.Addr()
}

func usedCPU() time.Duration {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkLimitedBytes is what limits cost that nobody reaches: client, door, agent and
// target are in the process.
func BenchmarkLimitedBytes(b *testing.B) {
	const all = "total: {bytesPerSecond: 100Gi, bytesPerDay: 1Pi}\nclient: {bytesPerSecond: 100Gi}\ncluster: {bytesPerSecond: 100Gi}\nsource: {bytesPerSecond: 100Gi}\n"
	for _, bm := range []struct{ name, limits string }{{"none", ""}, {"no bytes", "client: {connections: 100}"}, {"bytes", all}} {
		for _, way := range []string{"up", "down"} {
			b.Run(bm.name+"/"+way, func(b *testing.B) {
				var args []string
				if bm.limits != "" {
					args = []string{"--limits", writeFile(b, b.TempDir(), "limits.yaml", bm.limits)}
				}
				target := sink(b)
				if way == "down" {
					target = source(b)
				}
				conn, err := dialThrough(b, serveQuietly(b, "info", target, 0, args...)("ann"))
				if err != nil {
					b.Fatal(err)
				}
				buf := make([]byte, 1<<20)
				if _, err := conn.Write(buf[:1]); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(buf)))
				before := usedCPU()
				for b.Loop() {
					if way == "down" {
						_, err = io.ReadFull(conn, buf)
					} else {
						_, err = conn.Write(buf)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((usedCPU()-before).Seconds()/float64(b.N)/float64(len(buf))*1e9, "cpu-s/GB")
			})
		}
	}
}

// source returns the address of a target that sends without end when it is sent a byte.
func source(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
		p := make([]byte, 64<<10)
		for _, err := conn.Read(p[:1]); err == nil; {
			_, err = conn.Write(p)
		}
	})
	b.Cleanup(s.Close)
	return s.Addr()
}

// BenchmarkFairShares is what a client with one connection gets beside one with a
// hundred, within one limit, on a line of 100 Mbit/s, and where the CPU is what is short;
// and how long its dials take.
func BenchmarkFairShares(b *testing.B) {
	for _, bm := range []struct {
		name, limits string
		rate         int
	}{{"none", "", 0}, {"50Mi", "total: {bytesPerSecond: 50Mi}", 0}, {"line", "", 100_000_000 / 8}} {
		for _, greedy := range []int{0, 100} {
			b.Run(bm.name+"/"+map[int]string{0: "alone", 100: "beside 100"}[greedy], func(b *testing.B) {
				var args []string
				if bm.limits != "" {
					args = []string{"--limits", writeFile(b, b.TempDir(), "limits.yaml", bm.limits)}
				}
				ticket := serveQuietly(b, "warn", source(b), bm.rate, args...)
				for b.Loop() {
					shareOnce(b, ticket, greedy)
				}
			})
		}
	}
}

func shareOnce(b *testing.B, ticket func(user string) string, greedy int) {
	var (
		wg      sync.WaitGroup
		amounts [2]atomic.Int64
		conns   []net.Conn
	)
	read := func(proxy string, n *atomic.Int64) {
		conn, err := dialThrough(b, proxy)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Write([]byte{1}); err != nil {
			b.Fatal(err)
		}
		conns = append(conns, conn)
		wg.Go(func() {
			for p := make([]byte, 64<<10); ; {
				m, err := conn.Read(p)
				n.Add(int64(m))
				if err != nil {
					return
				}
			}
		})
	}
	for range greedy {
		read(ticket("greedy"), &amounts[0])
	}
	modest := ticket("modest")
	read(modest, &amounts[1])
	time.Sleep(2 * time.Second) // until what was queued before has passed
	before := [2]int64{amounts[0].Load(), amounts[1].Load()}
	var took []time.Duration
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		began := time.Now()
		conn, err := dialThrough(b, modest)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		conn.Close()
	}
	slices.Sort(took)
	its, others := amounts[1].Load()-before[1], amounts[0].Load()-before[0]
	b.ReportMetric(float64(its)/float64(its+others)*100, "%share")
	b.ReportMetric(float64(its+others)/3/(1<<20), "MiB/s")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-dial-ms")
	for _, conn := range conns {
		conn.Close()
	}
	wg.Wait()
}
