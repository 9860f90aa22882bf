package carrier_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// flushing flushes each Write, as a net.Conn's user expects.
type flushing struct{ *carrier.Conn }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	if err == nil {
		err = f.Flush()
	}
	if err != nil {
		n = 0
	}
	return n, err
}

const nettestEnv = "CAUSEWAY_TEST_NETTEST"

// TestCarrierIsAConn leaves out what writes again after a write deadline: TLS
// can't, for half a record may be under way. nettest leaves nothing out by
// itself, so it runs in a process of its own.
func TestCarrierIsAConn(t *testing.T) {
	if os.Getenv(nettestEnv) != "" {
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
			a, b := ends(t, tcp())
			agent, server := carriers(t, a, b)
			return flushing{agent}, flushing{server}, func() { agent.Close(); server.Close() }, nil
		})
		return
	}
	cmd := exec.CommandContext(testContext(t), os.Args[0], "-test.v", "-test.run=^TestCarrierIsAConn$",
		"-test.skip=/^(PastTimeout|FutureTimeout|ConcurrentMethods)$")
	cmd.Env = append(os.Environ(), nettestEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	passed := regexp.MustCompile(`--- PASS: TestCarrierIsAConn/`).FindAll(out, -1)
	if len(passed) != 8 {
		t.Errorf("got %d subtests that pass, want 8:\n%s", len(passed), out)
	}
}

// counted counts the writes of a connection and keeps what is written.
type counted struct {
	net.Conn
	writes, bytes atomic.Int32
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	c.bytes.Add(int32(len(p)))
	return c.Conn.Write(p)
}

func TestFlushIsWhatSends(t *testing.T) {
	tests := []struct {
		name          string
		sizes         []int // of writes
		before, after int32 // writes below, before and after Flush
	}{
		{"nothing", nil, 0, 0},
		{"one byte", []int{1}, 0, 1},
		{"a frame", []int{64 << 10}, 0, 1},
		{"two frames", []int{64 << 10, 64 << 10}, 0, 1},
		{"two frames and a ping", []int{12, 64 << 10, 64 << 10}, 0, 1},
		{"four frames", []int{64 << 10, 64 << 10, 64 << 10, 64 << 10}, 1, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := ends(t, tcp())
			raw := &counted{Conn: a}
			agent, server := carriers(t, raw, b)
			handshake, before := raw.writes.Load(), raw.bytes.Load()
			total, sealed := 0, 0
			for _, size := range tt.sizes {
				total += size
				sealed += size + 22*((size+16<<10-1)/(16<<10)) // as few records as can be
			}
			// It reads from the beginning: the kernel may take less than is written.
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := io.ReadFull(server, make([]byte, total)); err != nil {
					t.Error(err)
				}
			})
			for _, size := range tt.sizes {
				if n, err := agent.Write(make([]byte, size)); n != size || err != nil {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			if got := raw.writes.Load() - handshake; got != tt.before {
				t.Errorf("got %d writes below before Flush, want %d", got, tt.before)
			}
			if err := agent.Flush(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if got := raw.writes.Load() - handshake; got != tt.after {
				t.Errorf("got %d writes below after Flush, want %d", got, tt.after)
			}
			if got := int(raw.bytes.Load() - before); got != sealed {
				t.Errorf("got %d bytes below for %d, want %d", got, total, sealed)
			}
			agent.Close()
			if got := raw.writes.Load() - handshake; got != tt.after+1 {
				t.Errorf("got %d writes below after Close, want %d: close_notify", got, tt.after+1)
			}
		})
	}
}

func TestWriteDeadlineIsTheLastWord(t *testing.T) {
	a, b := ends(t, tcp())
	agent, server := carriers(t, a, b)
	agent.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	var first error
	for first == nil {
		_, first = agent.Write(make([]byte, 64<<10))
	}
	if !errors.Is(first, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a deadline", first)
	}
	agent.SetWriteDeadline(time.Time{})
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, server) })
	for range 2 {
		if _, err := agent.Write([]byte{1}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write afterwards: got %v, want the deadline again", err)
		}
		if err := agent.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Flush afterwards: got %v, want the deadline again", err)
		}
	}
	agent.Close()
	wg.Wait()
}

func TestReadDeadlineIsNot(t *testing.T) {
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			a, b := ends(t, tt)
			agent, server := carriers(t, a, b)
			for range 3 {
				agent.SetReadDeadline(time.Now().Add(time.Millisecond))
				if n, err := agent.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %d, %v; want a deadline", n, err)
				}
				agent.SetReadDeadline(time.Time{})
				flushing{server}.Write([]byte("hello"))
				got := make([]byte, 5)
				if _, err := io.ReadFull(agent, got); err != nil || string(got) != "hello" {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
}

// pipes returns carriers over a net.Pipe, which buffers nothing.
func pipes(t *testing.T, wrap func(agent, server net.Conn) (net.Conn, net.Conn)) (agent, server *carrier.Conn) {
	a, b := net.Pipe()
	if wrap != nil {
		a, b = wrap(a, b)
	}
	return carriers(t, a, b)
}

func overWebSocket(a, b net.Conn) (net.Conn, net.Conn) {
	return websocket.NewConn(a, true, nil), websocket.NewConn(b, false, nil)
}

// speaker says something and then reads what comes, until it is closed.
func speaker(t *testing.T, say string) net.Conn {
	a, b := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { io.WriteString(b, say) })
	wg.Go(func() { io.Copy(io.Discard, b) })
	t.Cleanup(func() { b.Close(); wg.Wait() })
	return a
}

func TestHandshakeWithSomethingElse(t *testing.T) {
	tests := []struct {
		name, say string
		server    bool
		want      string
	}{
		{"http client", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, "the client speaks HTTP"},
		{"http/2 client", "PRI * HTTP/2.0\r\n\r\n", true, "the client speaks HTTP"},
		{"connect", "CONNECT a:1 HTTP/1.1\r\n\r\n", true, "the client speaks HTTP"},
		{"ssh client", "SSH-2.0-OpenSSH\r\n", true, "the peer speaks SSH"},
		{"zeros", strings.Repeat("\x00", 100), true, "the peer does not speak TLS"},
		{"http server", "HTTP/1.1 400 Bad Request\r\n\r\n", false, "ws:// or wss://"},
		{"ssh server", "SSH-2.0-OpenSSH\r\n", false, "the peer speaks SSH"},
		{"record of the largest size", "\x16\x03\x01\xff\xff" + strings.Repeat("x", 1<<16), true, "oversized record"},
		{"alert", "\x15\x03\x03\x00\x02\x02\x28", false, "handshake failure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raw := speaker(t, tt.say)
			config := pki.ClientTLS()
			if tt.server {
				config = pki.ServerTLS()
			}
			_, err := handshake(testContext(t), raw, config, tt.server)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, tt.want)
			}
			if err := raw.SetDeadline(time.Time{}); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the connection was left open")
			}
		})
	}
}

func TestHandshakeTimesOut(t *testing.T) {
	for _, server := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer b.Close()
			var wg sync.WaitGroup
			wg.Go(func() { io.Copy(io.Discard, b) })
			ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
			defer cancel()
			began := time.Now()
			config := pki.ClientTLS()
			if server {
				config = pki.ServerTLS()
			}
			_, err := handshake(ctx, a, config, server)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 7*time.Second {
				t.Errorf("server %t: got %v after %v, want DeadlineExceeded after 7 s", server, err, time.Since(began))
			}
			wg.Wait()
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	a, b := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		config := pki.ClientTLS()
		config.MaxVersion = tls.VersionTLS12
		tls.Client(b, config).Handshake()
		b.Close()
	})
	if _, err := handshake(testContext(t), a, pki.ServerTLS(), true); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
	wg.Wait()
}

// A cut must never look like an end, wherever it is.
func TestCutIsNotAnEnd(t *testing.T) {
	tests := []struct {
		name string
		cut  func(raw net.Conn)
	}{
		{"between records", func(net.Conn) {}},
		{"in a header", func(raw net.Conn) { raw.Write([]byte{0x17, 0x03}) }},
		{"in a record", func(raw net.Conn) { raw.Write([]byte{0x17, 0x03, 0x03, 0x40, 0x00, 1, 2, 3}) }},
	}
	for _, tt := range transports {
		for _, cut := range tests {
			t.Run(tt.name+", "+cut.name, func(t *testing.T) {
				a, b := ends(t, tt)
				agent, server := carriers(t, a, b)
				flushing{agent}.Write([]byte("half"))
				cut.cut(a)
				a.Close()
				got, err := io.ReadAll(server)
				if string(got) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("got %q, %v; want what was sent and ErrUnexpectedEOF", got, err)
				}
				if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("got %v the second time", err)
				}
			})
		}
	}
}

func TestGarbageAfterTLS(t *testing.T) {
	tests := []struct{ name, garbage string }{
		{"no record", "HTTP/1.1 200 OK\r\n\r\n"},
		{"a forged record", "\x17\x03\x03\x00\x20" + strings.Repeat("x", 32)},
		{"an oversized record", "\x17\x03\x03\xff\xff" + strings.Repeat("x", 32)},
		{"an alert in plain text", "\x15\x03\x03\x00\x02\x01\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := ends(t, tcp())
			agent, server := carriers(t, a, b)
			io.WriteString(a, tt.garbage)
			if n, err := server.Read(make([]byte, 100)); n != 0 || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("got %d, %v; want an error that is no end", n, err)
			}
			// The peer learns of it: an alert goes out without a Flush.
			if _, err := agent.Read(make([]byte, 100)); err == nil || !strings.Contains(err.Error(), "remote error") {
				t.Errorf("the sender got %v, want an alert", err)
			}
		})
	}
}

// TestIdleCarriersAreSmall is about what stays after a burst.
func TestIdleCarriersAreSmall(t *testing.T) {
	const pairs = 50
	const most = 48 << 10 // a side; a buffer that is held has 136 KiB
	same := func(conn net.Conn) net.Conn { return conn }
	for _, tt := range []struct {
		name      string
		transport transport
		wrap      func(net.Conn) net.Conn
	}{
		{"tcp", tcp(), same},
		{"ws", webSocket("ws", nil), same},
		{"wrapped", tcp(), func(conn net.Conn) net.Conn { return &counted{Conn: conn} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var wg sync.WaitGroup
			before := memory()
			var all []*carrier.Conn
			for range pairs {
				a, b := ends(t, tt.transport)
				agent, server := carriers(t, tt.wrap(a), tt.wrap(b))
				all = append(all, agent, server)
				burst := bytes.Repeat([]byte{1}, 256<<10)
				wg.Go(func() { flushing{agent}.Write(burst) })
				wg.Go(func() { flushing{server}.Write(burst) })
				wg.Go(func() { io.ReadFull(agent, make([]byte, len(burst))) })
				io.ReadFull(server, make([]byte, len(burst)))
				wg.Wait()
				for _, c := range []*carrier.Conn{agent, server} { // as a keepalive
					flushing{c}.Write(burst[:12])
				}
				io.ReadFull(agent, burst[:12])
				io.ReadFull(server, burst[:12])
			}
			for _, c := range all {
				wg.Go(func() { c.Read(make([]byte, 100)) })
			}
			got := most + 1
			for try := 0; try < 100 && got > most; try++ { // until all wait
				got = (memory() - before) / (2 * pairs)
			}
			if got > most {
				t.Errorf("got %d bytes a side, want at most %d", got, most)
			}
			t.Logf("%d bytes a side", got)
			for _, c := range all {
				c.Close()
			}
			wg.Wait()
		})
	}
}

// memory is heap and stacks in use, without what pools keep.
func memory() int {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
