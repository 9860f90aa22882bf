package gateway_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

const (
	// maxStranger is how much heap a connection may cost that nobody was let in
	// by: a frame, what is read ahead of it, early data, and what waits to be sent.
	maxStranger = 128 << 10
	// maxRefusals is how often it may be told that it is not let in.
	maxRefusals = 150
)

// h2attacks are what a stranger sends after the preface. It reads nothing.
var h2attacks = []struct {
	name string
	send func(*http2.Framer, *bytes.Buffer)
}{
	{"claims a frame of 16 MiB", func(_ *http2.Framer, b *bytes.Buffer) {
		b.Write([]byte{0xff, 0xff, 0xff, byte(http2.FrameData), 0, 0, 0, 0, 1, 'x'})
	}},
	{"a part of a frame of 16 KiB", func(_ *http2.Framer, b *bytes.Buffer) {
		b.Write([]byte{0, 0x40, 0, byte(http2.FrameData), 0, 0, 0, 0, 1, 'x'})
	}},
	{"a header without an end", func(fr *http2.Framer, _ *bytes.Buffer) {
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: connectBlock("wait")})
		fr.WriteContinuation(1, false, headerBlock("x", strings.Repeat("x", 12_000)))
	}},
	{"pings", func(fr *http2.Framer, _ *bytes.Buffer) {
		for range 8000 {
			fr.WritePing(false, [8]byte{})
		}
	}},
	{"requests", func(fr *http2.Framer, _ *bytes.Buffer) {
		for i := range uint32(1000) {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: connectBlock("wrong"), EndHeaders: true})
		}
	}},
	{"malformed requests", func(fr *http2.Framer, _ *bytes.Buffer) {
		for i := range uint32(1000) {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: headerBlock("x", "y"), EndHeaders: true})
		}
	}},
	{"names that must not be", func(fr *http2.Framer, _ *bytes.Buffer) {
		for i := range uint32(20_000) {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: headerBlock("X", "y"), EndHeaders: true})
		}
	}},
	{"early data of few streams", func(fr *http2.Framer, _ *bytes.Buffer) {
		early(fr, 8, 8000)
	}},
	{"early data of many streams", func(fr *http2.Framer, _ *bytes.Buffer) {
		early(fr, 50, 1200)
	}},
}

// early is data on streams that nobody lets in yet.
func early(fr *http2.Framer, streams uint32, n int) {
	for i := range streams {
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: connectBlock("wait"), EndHeaders: true})
		fr.WriteData(2*i+1, false, make([]byte, n))
	}
}

// headerBlock is a block without a reference to the dynamic table.
func headerBlock(fields ...string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	enc.SetMaxDynamicTableSize(0)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

func connectBlock(token string) []byte {
	return headerBlock(":method", "CONNECT", ":authority", targetA, "proxy-authorization", "Bearer "+token)
}

// What strangers cost who speak HTTP/2, and that nobody else waits for them.
func TestHTTP2Strangers(t *testing.T) {
	const strangers = 100
	for _, tt := range h2attacks {
		t.Run(tt.name, func(t *testing.T) {
			var failed atomic.Int64
			b := newBed(t, door{serve: (*gateway.Gateway).ServeConnect, client: h2cClient}, func(g *gateway.Gateway) {
				g.Hooks.Failed = func(error) { failed.Add(1) }
				g.Authenticate = func(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
					if c.Bearer == "wait" {
						<-ctx.Done()
						return gateway.Identity{}, ctx.Err()
					}
					return authenticate(ctx, c)
				}
				g.Dial = dialEcho
			})
			client := b.door.client(t, b.addr, "ann", secret)
			dialTimes(t, client, 1) // now it has its connection
			before := liveHeap()
			conns := attackH2(b, strangers, tt.send)
			took := dialTimes(t, client, 20)
			fresh := dialTimes(t, h2cClient(t, b.addr, "ann", secret), 1)
			var heaps []int64
			for range 5 {
				heaps = append(heaps, (liveHeap()-before)/strangers)
			}
			slices.Sort(heaps)
			t.Logf("a stranger costs %d bytes of heap and %d lines of a log; a right client dials in %v at worst, one that is new in %v",
				heaps[2], failed.Load()/strangers, took, fresh)
			if heaps[2] > maxStranger {
				t.Errorf("a stranger costs %d bytes of heap, want %d at most", heaps[2], maxStranger)
			}
			if n := failed.Load(); n > strangers*maxRefusals {
				t.Errorf("%d strangers make %d lines of a log, want %d at most", strangers, n, strangers*maxRefusals)
			}
			if took > 10*time.Second || fresh > 10*time.Second {
				t.Errorf("a right client waits for %v, one that is new for %v", took, fresh)
			}
			for _, conn := range conns {
				conn.Close()
			}
		})
	}
}

// attackH2 returns once so many strangers have sent what they do, or as much of
// that as the door takes.
func attackH2(b *bed, n int, send func(*http2.Framer, *bytes.Buffer)) []net.Conn {
	var all bytes.Buffer
	all.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&all, nil)
	fr.WriteSettings()
	send(fr, &all)
	conns := make([]net.Conn, n)
	var wg sync.WaitGroup
	for i := range conns {
		conns[i] = b.wire()
		conns[i].SetWriteDeadline(time.Now().Add(time.Second))
		wg.Go(func() { conns[i].Write(all.Bytes()) })
	}
	wg.Wait()
	return conns
}

// dialTimes is the longest of n dials, each with an echo.
func dialTimes(t *testing.T, client dialer.Dialer, n int) (worst time.Duration) {
	t.Helper()
	for range n {
		began := time.Now()
		conn, err := client.DialContext(t.Context(), "tcp", targetA)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "echo")
		expect(t, conn, []byte("echo"))
		conn.Close()
		worst = max(worst, time.Since(began))
	}
	return worst
}
