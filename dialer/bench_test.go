package dialer_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// BenchmarkHTTPConnect compares a dial with the least that a program could do
// by hand: connect, write, read up to the empty line.
func BenchmarkHTTPConnect(b *testing.B) {
	reply := []byte("HTTP/1.1 200 Connection established\r\n\r\n")
	addr := serve(b, listen(b), func(_ context.Context, conn net.Conn) {
		buf := make([]byte, 512)
		if _, err := conn.Read(buf); err == nil {
			conn.Write(reply)
			conn.Read(buf)
		}
	})
	b.Run("impl=by-hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target)
			for br := bufio.NewReader(conn); ; {
				line, err := br.ReadString('\n')
				if err != nil {
					b.Fatal(err)
				}
				if strings.TrimSpace(line) == "" {
					break
				}
			}
			conn.Close()
		}
	})
	b.Run("impl=causeway", func(b *testing.B) {
		benchDial(b, &dialer.HTTPConnect{Addr: addr})
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
			benchDial(b, bm.dialer(dialer.Func(func(context.Context, string, string) (net.Conn, error) {
				conn.r.Reset(reply)
				return conn, nil
			})))
		})
	}
}

func BenchmarkSOCKS5(b *testing.B) {
	addr := serve(b, listen(b), (&proxytest.SOCKS5{Username: "u", Password: "p", Dial: toEcho(b)}).Handle)
	benchDial(b, &dialer.SOCKS5{Addr: addr, Credentials: dialer.Password("u", "p")})
}

func benchDial(b *testing.B, d dialer.Dialer) {
	b.ReportAllocs()
	for b.Loop() {
		conn, err := d.DialContext(b.Context(), "tcp", target)
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
