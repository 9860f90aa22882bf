package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// maxPending is that of the doors under attack; the strangers hold twice as many
// connections.
const maxPending = 100

// rawDoor is a door as clients see it who have nothing but a socket.
type rawDoor struct {
	open  bool // it knows no credentials
	serve func(*gateway.Gateway, context.Context, net.Listener) error
	tls   bool
	// ask goes from the first byte to what an echo says.
	ask func(net.Conn) error
}

var (
	basicAnn = base64.StdEncoding.EncodeToString([]byte("ann:" + secret))
	rightAsk = "CONNECT " + targetA + " HTTP/1.1\r\nHost: " + targetA + "\r\nProxy-Authorization: Basic " + basicAnn + "\r\n\r\n"
)

var rawDoors = map[string]rawDoor{
	"connect":      {serve: (*gateway.Gateway).ServeConnect, ask: askHTTP},
	"connect, TLS": {serve: (*gateway.Gateway).ServeConnect, tls: true, ask: overTLS(askHTTP)},
	"connect, h2":  {serve: (*gateway.Gateway).ServeConnect, ask: askHTTP2},
	"socks5":       {serve: (*gateway.Gateway).ServeSOCKS5, ask: askSOCKS5},
	"sni":          {serve: (*gateway.Gateway).ServeSNI, open: true, ask: func(c net.Conn) error { return exchange(c, oneRecord(sniOf("api.example.com")), "") }},
}

// exchange says something, and wants what begins so and then what was said: an
// echo of it.
func exchange(conn net.Conn, say, want string) error {
	if want == "" {
		want = say
	}
	if _, err := io.WriteString(conn, say); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		return fmt.Errorf("got %q, %v, want %q", got[:n], err, want)
	}
	return nil
}

func askHTTP(conn net.Conn) error {
	if err := exchange(conn, rightAsk, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return err
	}
	return exchange(conn, "ping", "")
}

func askSOCKS5(conn net.Conn) error {
	for _, turn := range [][2]string{
		{"\x05\x01\x02", "\x05\x02"}, {"\x01\x03ann" + string(rune(len(secret))) + secret, "\x01\x00"},
		{"\x05\x01\x00\x03" + string(rune(len(targetA)-4)) + targetA[:len(targetA)-4] + "\x01\xbb", "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"}, {"ping", "ping"},
	} {
		if err := exchange(conn, turn[0], turn[1]); err != nil {
			return err
		}
	}
	return nil
}

func overTLS(ask func(net.Conn) error) func(net.Conn) error {
	return func(conn net.Conn) error { return ask(tls.Client(conn, clientTLS())) }
}

// askHTTP2 asks by prior knowledge.
func askHTTP2(conn net.Conn) error {
	f := sayHTTP2(conn, "Basic "+basicAnn)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status := frame.PseudoValue("status"); status != "200" {
				return errors.New("got status " + status)
			}
			if err := f.WriteData(1, false, []byte("ping")); err != nil {
				return err
			}
		case *http2.DataFrame:
			if string(frame.Data()) != "ping" {
				return fmt.Errorf("got %q", frame.Data())
			}
			return nil
		}
	}
}

// sayHTTP2 asks for the target on stream 1.
func sayHTTP2(conn net.Conn, authorization string) *http2.Framer {
	var out, block bytes.Buffer
	f := http2.NewFramer(&out, bufio.NewReader(conn))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	out.WriteString(http2.ClientPreface)
	f.WriteSettings()
	e := hpack.NewEncoder(&block)
	e.WriteField(hpack.HeaderField{Name: ":method", Value: "CONNECT"})
	e.WriteField(hpack.HeaderField{Name: ":authority", Value: targetA})
	if authorization != "" {
		e.WriteField(hpack.HeaderField{Name: "proxy-authorization", Value: authorization})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	conn.Write(out.Bytes())
	g := http2.NewFramer(conn, bufio.NewReader(conn))
	g.ReadMetaHeaders = f.ReadMetaHeaders
	return g
}

// say is a stranger who says something and then nothing.
func say(text string) func(net.Conn) { return func(conn net.Conn) { io.WriteString(conn, text) } }

// sayAndRead reads a bit of the answer too.
func sayAndRead(text string) func(net.Conn) {
	return func(conn net.Conn) {
		io.WriteString(conn, text)
		conn.Read(make([]byte, 1))
	}
}

// Strangers who come again and again from one address, and hold what they get,
// keep nobody out, neither elsewhere nor, for long, at their own address.
func TestStrangersKeepNobodyOut(t *testing.T) {
	for _, tt := range []struct {
		door, name string
		do         func(net.Conn)
	}{
		{"connect", "silent", say("")},
		{"connect", "half a request", say(rightAsk[:30])},
		{"connect", "a long header", say("CONNECT " + targetA + " HTTP/1.1\r\nA: " + strings.Repeat("x", 15<<10))},
		{"connect, TLS", "silent", say("")},
		{"connect, TLS", "half a hello", say(oneRecord(sniOf("gateway"))[:50])},
		{"connect, TLS", "a long hello", say("\x16\x03\x01\x30\x00\x01\x00\xff\x00" + strings.Repeat("x", 11<<10))},
		{"connect, TLS", "no request", func(conn net.Conn) { tls.Client(conn, clientTLS()).Handshake() }},
		{"connect, h2", "no stream", say(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")},
		{"connect, h2", "wrong credentials", func(conn net.Conn) { sayHTTP2(conn, "").ReadFrame() }},
		{"socks5", "silent", say("")},
		{"socks5", "greeting", sayAndRead("\x05\x01\x02")},
		{"sni", "silent", say("")},
		{"sni", "half a hello", say(oneRecord(sniOf("api.example.com"))[:50])},
		{"sni", "a long hello", say("\x16\x03\x01\x40\x00\x01\x00\xff\x00" + strings.Repeat("x", 15<<10))},
	} {
		t.Run(tt.door+", "+tt.name, func(t *testing.T) {
			testStrangers(t, rawDoors[tt.door], tt.do)
		})
	}
}

func testStrangers(t *testing.T, d rawDoor, do func(net.Conn)) {
	var failed atomic.Int64
	g := &gateway.Gateway{Dial: dialEcho, Authenticate: authenticate, MaxConns: 100, MaxPending: maxPending, Grace: -1}
	g.Hooks.Failed = func(error) { failed.Add(1) }
	if d.tls {
		g.TLS = serverTLS()
	}
	if d.open {
		g.Authenticate, g.Route = gateway.Anyone, gateway.ByTable(tableOf())
	}
	addr, _ := open(t, g, func(ctx context.Context, l net.Listener) error { return d.serve(g, ctx, l) })
	calm, _ := letIn(t, d, addr, "127.0.0.2")
	stop, came := attackDoor(t, addr, "127.0.0.9", do)
	var elsewhere, same time.Duration
	attempts := 0
	for range 5 {
		took, n := letIn(t, d, addr, "127.0.0.2")
		elsewhere, attempts = max(elsewhere, took), max(attempts, n)
		took, _ = letIn(t, d, addr, "127.0.0.9")
		same = max(same, took)
	}
	status := g.Status()
	open := status.Open
	stop()
	t.Logf("let in within %v at an address of their own, %v at the strangers', %v without them; %d connections, %d open, %d failures",
		elsewhere, same, calm, came.Load(), open, failed.Load())
	if attempts > 1 {
		t.Errorf("a client with an address of its own had to try %d times", attempts)
	}
	if slack := 20 * calm; elsewhere > 2*time.Second+slack || same > 10*time.Second+slack {
		t.Errorf("a client was kept out for %v, want 2 s, or for %v beside the strangers, want 10 s", elsewhere, same)
	}
	if status.Pending == 0 || status.Pending > maxPending || status.Waiting > 4*maxPending {
		t.Errorf("got %d connections that are not authenticated and %d that wait, want %d and %d at most", status.Pending, status.Waiting, maxPending, 4*maxPending)
	}
	if most := 5*maxPending + 10; open > most { // a place, and four that wait for it
		t.Errorf("%d connections are open, want %d at most", open, most)
	}
}

// letIn returns how long a client of the source needs until it is let in, which
// tries again, 20 times a second, when it is refused.
func letIn(t *testing.T, d rawDoor, addr, source string) (took time.Duration, attempts int) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 10 * time.Second}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	began := time.Now()
	var last error
	for attempts = 1; time.Since(began) < 20*time.Second; attempts++ {
		var conn net.Conn
		if conn, last = dialer.Dial("tcp", addr); last == nil {
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			last = d.ask(conn)
			conn.Close()
		}
		if last == nil {
			return time.Since(began), attempts
		}
		<-again.C
	}
	t.Fatalf("a client of %s was not let in, at attempt %d: %v", source, attempts, last)
	return 0, 0
}

// attackDoor has strangers of one source hold twice as many connections as there
// are places. They come again when they are closed, 50 a second. It
// returns once all have come.
func attackDoor(t *testing.T, addr, source string, do func(net.Conn)) (stop func(), came *atomic.Int64) {
	t.Helper()
	came = new(atomic.Int64)
	ctx, cancel := context.WithCancel(t.Context())
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 10 * time.Second}
	again := time.NewTicker(20 * time.Millisecond)
	var first, all sync.WaitGroup
	for range 2 * maxPending {
		first.Add(1)
		all.Go(func() {
			did := sync.OnceFunc(first.Done)
			defer did()
			for ctx.Err() == nil {
				conn, err := dialer.DialContext(ctx, "tcp", addr)
				if err != nil {
					continue
				}
				came.Add(1)
				conn.(*net.TCPConn).SetLinger(0)
				leave := context.AfterFunc(ctx, func() { conn.Close() })
				conn.SetDeadline(time.Now().Add(time.Second))
				do(conn)
				did()
				conn.SetDeadline(time.Time{})
				io.Copy(io.Discard, conn)
				leave()
				conn.Close()
				select {
				case <-again.C:
				case <-ctx.Done():
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait(); again.Stop() })
	t.Cleanup(stop)
	first.Wait()
	return stop, came
}

// What connections cost that are not let in.
func TestStrangersMemory(t *testing.T) {
	for _, tt := range []struct {
		door, name string
		do         func(net.Conn)
	}{
		{"connect", "silent", say("")},
		{"connect", "a long header", say("CONNECT " + targetA + " HTTP/1.1\r\nA: " + strings.Repeat("x", 15<<10))},
		{"connect, TLS", "silent", say("")},
		{"connect, TLS", "a long hello", say("\x16\x03\x01\x30\x00\x01\x00\xff\x00" + strings.Repeat("x", 11<<10))},
		{"connect, TLS", "no request", func(conn net.Conn) { tls.Client(conn, clientTLS()).Handshake() }},
		{"socks5", "greeting", sayAndRead("\x05\x01\x02")},
		{"sni", "a long hello", say("\x16\x03\x01\x40\x00\x01\x00\xff\x00" + strings.Repeat("x", 15<<10))},
	} {
		t.Run(tt.door+", "+tt.name, func(t *testing.T) {
			d := rawDoors[tt.door]
			g := &gateway.Gateway{Dial: dialEcho, Authenticate: authenticate, Grace: -1}
			if d.tls {
				g.TLS = serverTLS()
			}
			addr, _ := open(t, g, func(ctx context.Context, l net.Listener) error { return d.serve(g, ctx, l) })
			letIn(t, rawDoor{ask: func(net.Conn) error { return nil }}, addr, "127.0.0.2")
			before := liveBytes()
			for range maxPending {
				conn := call(t, addr)
				conn.SetDeadline(time.Now().Add(2 * time.Second))
				tt.do(conn)
			}
			for g.Status().Total <= maxPending {
				runtime.Gosched()
			}
			each := (liveBytes() - before) / maxPending
			t.Logf("a stranger costs %d bytes, %d are there", each, g.Status().Open)
			if each > 64<<10 {
				t.Errorf("a stranger costs %d bytes, want 64 KiB at most", each)
			}
		})
	}
}

// liveBytes is what lives in the heap and on stacks.
func liveBytes() int64 {
	m := memory()
	return m.heap + m.stack
}
