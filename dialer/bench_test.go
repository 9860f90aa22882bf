package dialer_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// otherProcess runs the proxy of BenchmarkHTTPConnect in a process of its own,
// so that only the client's allocations and time on its CPU are counted. See
// TestMain.
func otherProcess(b *testing.B) (addr string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchProxyEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdin, err := cmd.StdinPipe() // its end is the proxy's
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stdin.Close(); cmd.Wait() })
	addr, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

const benchProxyEnv = "CAUSEWAY_BENCH_PROXY"

// benchProxy connects everyone to nothing, until stdin ends.
func benchProxy() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	reply := []byte("HTTP/1.1 200 Connection established\r\n\r\n")
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
		buf := make([]byte, 512)
		if _, err := conn.Read(buf); err == nil {
			conn.Write(reply)
			conn.Read(buf)
		}
	})
	fmt.Println(s.Addr())
	io.Copy(io.Discard, os.Stdin)
	s.Close()
}

// BenchmarkHTTPConnect compares a dial with the least that a program could do
// by hand: connect, write, read up to the empty line.
func BenchmarkHTTPConnect(b *testing.B) {
	addr := otherProcess(b)
	byHand := func(b *testing.B, ctx context.Context) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target)
		for br := bufio.NewReader(conn); ; {
			line, err := br.ReadString('\n')
			if err != nil {
				b.Fatal(err)
			}
			if strings.TrimSpace(line) == "" {
				return
			}
		}
	}
	b.Run("impl=by-hand/deadline=none", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			byHand(b, b.Context())
		}
	})
	b.Run("impl=by-hand/deadline=own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
			byHand(b, ctx)
			cancel()
		}
	})
	// With the Timeout of its own that it has if ctx has no deadline, and
	// without.
	b.Run("impl=causeway/deadline=own", func(b *testing.B) {
		benchDial(b, b.Context(), &dialer.HTTPConnect{Addr: addr})
	})
	b.Run("impl=causeway/deadline=ctx", func(b *testing.B) {
		ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
		defer cancel()
		benchDial(b, ctx, &dialer.HTTPConnect{Addr: addr})
	})
}

// BenchmarkHandshake has no network and no server: what is counted is ours
// alone.
func BenchmarkHandshake(b *testing.B) {
	for _, bm := range []struct {
		name, reply string
		dialer      func(forward dialer.Dialer) dialer.Dialer
	}{
		{"http", "HTTP/1.1 200 Connection established\r\n\r\n", func(forward dialer.Dialer) dialer.Dialer {
			return &dialer.HTTPConnect{Addr: "192.0.2.1:3128", Forward: forward, Auth: dialer.Basic(dialer.Password("u", "p"))}
		}},
		{"socks5", "\x05\x02\x01\x00\x05\x00\x00" + bound4, func(forward dialer.Dialer) dialer.Dialer {
			return &dialer.SOCKS5{Addr: "192.0.2.1:1080", Forward: forward, Credentials: dialer.Password("u", "p")}
		}},
	} {
		b.Run("proxy="+bm.name, func(b *testing.B) {
			reply := []byte(bm.reply)
			conn := &replay{r: bytes.NewReader(reply)}
			benchDial(b, b.Context(), bm.dialer(dialer.Func(func(context.Context, string, string) (net.Conn, error) {
				conn.r.Reset(reply)
				return conn, nil
			})))
		})
	}
}

func BenchmarkSOCKS5(b *testing.B) {
	addr := serve(b, listen(b), (&proxytest.SOCKS5{Username: "u", Password: "p", Dial: toEcho(b)}).Handle)
	benchDial(b, b.Context(), &dialer.SOCKS5{Addr: addr, Credentials: dialer.Password("u", "p")})
}

func benchDial(b *testing.B, ctx context.Context, d dialer.Dialer) {
	b.ReportAllocs()
	for b.Loop() {
		conn, err := d.DialContext(ctx, "tcp", target)
		if err != nil {
			b.Fatal(err)
		}
		conn.Close()
	}
}

// BenchmarkRelay shows that a tunnel without early bytes is as fast as its
// connection: the raw one.
func BenchmarkRelay(b *testing.B) {
	addr := serve(b, listen(b), (&proxytest.HTTP{Dial: toEcho(b)}).Handle)
	conn, err := (&dialer.HTTPConnect{Addr: addr}).DialContext(b.Context(), "tcp", target)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	benchRelay(b, conn)
}

func benchRelay(b *testing.B, conn net.Conn) {
	buf := make([]byte, 32<<10)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHTTP2 dials and relays through one shared connection to a server
// of net/http in this process, whose allocations are counted too.
func BenchmarkHTTP2(b *testing.B) {
	d, _ := http2Proxy(b, &proxytest.HTTP{Dial: toEcho(b)})
	d.Forward = nil
	b.Run("dial", func(b *testing.B) { benchDial(b, b.Context(), d) })
	b.Run("relay", func(b *testing.B) {
		conn, err := d.DialContext(b.Context(), "tcp", target)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		benchRelay(b, conn)
	})
}
