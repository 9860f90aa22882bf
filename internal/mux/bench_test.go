package mux_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/hashicorp/yamux"
)

// opener makes streams, on either of the two implementations.
type opener func(testing.TB) (opened, accepted net.Conn)

// peers are what is compared. hashicorp/yamux is measured as it comes.
var peers = []struct {
	name  string
	start func(testing.TB, func(testing.TB) (client, server net.Conn)) opener
}{
	{"mux", func(b testing.TB, pair func(testing.TB) (client, server net.Conn)) opener {
		client, server := sessions(b, pair, nil)
		return func(b testing.TB) (net.Conn, net.Conn) { return connect(b, client, server, "") }
	}},
	{"yamux", func(b testing.TB, pair func(testing.TB) (client, server net.Conn)) opener {
		x, y := pair(b)
		return yamuxOpener(b, x, y)
	}},
	{"yamux-batched", func(b testing.TB, pair func(testing.TB) (client, server net.Conn)) opener {
		x, y := gatheredPair(b)
		return yamuxOpener(b, newBatcher(x), newBatcher(y))
	}},
}

func yamuxOpener(b testing.TB, x, y net.Conn) opener {
	client, err := yamux.Client(x, yamuxConfig())
	if err != nil {
		b.Fatal(err)
	}
	server, err := yamux.Server(y, yamuxConfig())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return func(b testing.TB) (net.Conn, net.Conn) {
		opened, err := client.Open()
		if err != nil {
			b.Fatal(err)
		}
		accepted, err := server.Accept()
		if err != nil {
			b.Fatal(err)
		}
		return opened, accepted
	}
}

func eachPeer(b *testing.B, run func(*testing.B, opener)) {
	for _, carrier := range carriers {
		for _, peer := range peers {
			if peer.name == "yamux-batched" && carrier.name != "gathered" || peer.name == "yamux" && carrier.name == "gathered" {
				continue
			}
			b.Run(carrier.name+"/"+peer.name, func(b *testing.B) {
				b.ReportAllocs()
				run(b, peer.start(b, carrier.pair))
			})
		}
	}
}

// BenchmarkThroughput writes 64 KiB per operation and stream, as a relay does.
func BenchmarkThroughput(b *testing.B) {
	for _, streams := range []int{1, 8} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			eachPeer(b, func(b *testing.B, open opener) {
				const size = 64 << 10
				b.SetBytes(int64(size * streams))
				var parts sync.WaitGroup
				began := cpu()
				for range streams {
					opened, accepted := open(b)
					parts.Go(func() {
						p := make([]byte, size)
						for range b.N {
							if _, err := opened.Write(p); err != nil {
								b.Error(err)
								return
							}
						}
					})
					parts.Go(func() {
						p := make([]byte, size)
						for left := b.N * size; left > 0; {
							n, err := accepted.Read(p)
							if err != nil {
								b.Error(err)
								return
							}
							left -= n
						}
					})
				}
				parts.Wait()
				b.ReportMetric(float64(cpu()-began)/float64(b.N*size*streams), "cpu-s/GB")
			})
		})
	}
}

// BenchmarkEcho is a round trip of 100 bytes on an open stream.
func BenchmarkEcho(b *testing.B) {
	eachPeer(b, func(b *testing.B, open opener) {
		opened, accepted := open(b)
		go io.Copy(accepted, accepted)
		p := make([]byte, 100)
		for b.Loop() {
			echo(b, opened, p)
		}
	})
}

// BenchmarkOpen opens a stream, has 100 bytes echoed and closes it.
func BenchmarkOpen(b *testing.B) {
	eachPeer(b, func(b *testing.B, open opener) {
		p, q := make([]byte, 100), make([]byte, 100)
		for b.Loop() {
			opened, accepted := open(b)
			opened.Write(p)
			if _, err := io.ReadFull(accepted, q); err != nil {
				b.Fatal(err)
			}
			accepted.Write(q)
			if _, err := io.ReadFull(opened, p); err != nil {
				b.Fatal(err)
			}
			opened.Close()
			accepted.Close()
		}
	})
}

func echo(b *testing.B, c net.Conn, p []byte) {
	b.Helper()
	if _, err := c.Write(p); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(c, p); err != nil {
		b.Fatal(err)
	}
}
