package websocket_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	xwebsocket "golang.org/x/net/websocket"

	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// script is a connection that yields fixed bytes and keeps what is written.
type script struct {
	net.Conn // nil
	io.Reader
	written bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s *script) Write(p []byte) (int, error) { return s.written.Write(p) }
func (s *script) Close() error                { return nil }

// longFrame has the length in eight bytes.
func longFrame(first byte, length uint64, payload string) string {
	return string(binary.BigEndian.AppendUint64([]byte{first, 127}, length)) + payload
}

// closeStatus is that of the Close frame at the end of b.
func closeStatus(b []byte, client bool) uint16 {
	key := make([]byte, 4)
	if client && len(b) >= 6 {
		key = b[len(b)-6:]
	}
	if len(b) < 2 {
		return 0
	}
	last := b[len(b)-2:]
	return binary.BigEndian.Uint16([]byte{last[0] ^ key[0], last[1] ^ key[1]})
}

// TestWebSocketMessages: gateways take messages of 32 KiB, and some no more than 16 KiB.
func TestWebSocketMessages(t *testing.T) {
	for _, client := range []bool{false, true} {
		for _, size := range []int{0, 1, 125, 126, 16 << 10, websocket.MaxPayload, 300_000} {
			peer := &countedScript{}
			conn := websocket.NewConn(peer, client, nil)
			data := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			if n, err := conn.Write(data); n != size || err != nil {
				t.Errorf("Write: got %d, %v", n, err)
			}
			if want := (size + websocket.MaxPayload - 1) / websocket.MaxPayload; peer.writes != want {
				t.Errorf("%d bytes: got %d writes below, want %d", size, peer.writes, want)
			}
			var got []byte
			for b := peer.written.Bytes(); len(b) > 0; {
				head, n := 2, int(b[1]&0x7f)
				if n == 126 {
					head, n = 4, int(binary.BigEndian.Uint16(b[2:]))
				}
				key := make([]byte, 4)
				if client {
					key, head = b[head:head+4], head+4
				}
				if b[0] != 0x82 || head+n > 16<<10 {
					t.Fatalf("got a frame %x of %d bytes, want a whole message of 16 KiB at most", b[0], head+n)
				}
				for i, c := range b[head : head+n] {
					got = append(got, c^key[i%4])
				}
				b = b[head+n:]
			}
			if !bytes.Equal(got, data) {
				t.Errorf("%d bytes: got others", size)
			}
		}
	}
}

// countedScript counts the writes.
type countedScript struct {
	script
	writes int
}

func (c *countedScript) Write(p []byte) (int, error) {
	c.writes++
	return c.script.Write(p)
}

func TestWebSocketFrames(t *testing.T) {
	huge := strings.Repeat("x", 100_000)
	tests := []struct {
		name, in  string
		server    bool // this end is the server, which gets masked frames
		want, err string
		status    uint16 // of the Close frame that Close sends; zero: normal
	}{
		{"one frame", "\x82\x05hello", false, "hello", "without a Close frame", 0},
		{"masked", "\x82\x85\x01\x02\x03\x04igohn", true, "hello", "without a Close frame", 0},
		{"empty frames", "\x82\x00\x82\x00\x82\x01a", false, "a", "without a Close frame", 0},
		{"fragments, and a ping between them", "\x02\x02he\x89\x01!\x00\x01l\x80\x02lo\x82\x01.", false, "hello.", "without a Close frame", 0},
		{"two bytes of length", "\x82\x7e\x00\x05hello", false, "hello", "without a Close frame", 0},
		{"close", "\x82\x02hi\x88\x02\x03\xe8\x82\x02no", false, "hi", "EOF", 0},
		{"an empty close", "\x88\x00", false, "", "EOF", 0},
		{"close with a reason", "\x82\x02hi\x88\x05\x03\xe8bye", false, "hi", "or a gateway, closed the connection: 1000 (normal): bye: unexpected EOF", 0},
		{"too big", "\x88\x09\x03\xf1> 32768", false, "", "closed the connection: 1009 (message too big): > 32768", 1009},
		{"too big, to a server", "\x88\x82\x00\x00\x00\x00\x03\xf1", true, "", "1009 (message too big): unexpected EOF", 1009},
		{"going away", "\x88\x02\x03\xe9", false, "", "1001 (going away)", 1001},
		{"the gateway restarts", "\x88\x02\x03\xf4", false, "", "1012 (the service restarts)", 1012},
		{"an application's code", "\x88\x02\x0f\xa0", false, "", "connection: 4000: unexpected EOF", 4000},
		{"a reason that does not print", "\x88\x07\x03\xf3\x1b[2J\n", false, "", `1011 (internal error): "\x1b[2J\n"`, 1011},
		{"a close of one byte", "\x88\x01\x03", false, "", "a Close frame of one byte", 1002},
		{"a code below 1000", "\x88\x02\x00\x00", false, "", "with the code 0", 1002},
		{"a code that nobody may send", "\x88\x02\x03\xee", false, "", "with the code 1006", 1002},
		{"no status as a code", "\x88\x02\x03\xed", false, "", "with the code 1005", 1002},
		{"a code without a meaning", "\x88\x02\x07\xd0", false, "", "with the code 2000", 1002},
		{"a code of 5000", "\x88\x02\x13\x88", false, "", "with the code 5000", 1002},
		{"a reason that is not UTF-8", "\x88\x03\x03\xe8\xff", false, "", "whose reason is not UTF-8", 1007},
		{"a long close", "\x88\x7e\x00\x80" + huge, false, "", "control frame that is too long", 1002},
		{"pongs", "\x8a\x00\x8a\x01x\x82\x01a", false, "a", "without a Close frame", 0},
		{"4 GiB", longFrame('\x82', 4<<30, huge), false, huge, "without a Close frame", 0},
		{"all that fits in 63 bits", longFrame('\x82', 1<<63-1, huge), false, huge, "without a Close frame", 0},
		{"a negative length", longFrame('\x82', 1<<63, huge), false, "", "a negative length", 1002},
		{"text", "\x82\x01a\x81\x02hi", false, "a", "a text message", 1003},
		{"not masked", "\x82\x02hi", true, "", "masked the wrong way", 1002},
		{"masked by a server", "\x82\x82\x01\x02\x03\x04hi", false, "", "masked the wrong way", 1002},
		{"reserved bits", "\xc2\x02hi", false, "", "reserved bits", 1002},
		{"unknown data", "\x83\x02hi", false, "", "unknown opcode 3", 1002},
		{"unknown control", "\x8b\x02hi", false, "", "unknown opcode 11", 1002},
		{"a continuation of nothing", "\x80\x02hi", false, "", "continuation of none", 1002},
		{"a message inside another", "\x02\x01a\x82\x01b", false, "a", "a message inside another", 1002},
		{"a long ping", "\x89\x7e\x01\x00" + huge, false, "", "control frame that is too long", 1002},
		{"a ping in fragments", "\x09\x01a", false, "", "control frame that is too long or not whole", 1002},
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n", false, "", "reserved bits", 1002},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, reader := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				peer := &script{Reader: reader}
				conn := websocket.NewConn(peer, !tt.server, nil)
				var got bytes.Buffer
				buf := make([]byte, 4096)
				var err error
				for err == nil {
					var n int
					n, err = conn.Read(buf)
					got.Write(buf[:n])
				}
				if got.String() != tt.want || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %.20q, %v; want %.20q, %q", got.String(), err, tt.want, tt.err)
				}
				if _, again := conn.Read(buf); again == nil || again.Error() != err.Error() {
					t.Errorf("got %v the second time", again)
				}
				conn.Close()
				if got := closeStatus(peer.written.Bytes(), !tt.server); got != cmp.Or(tt.status, 1000) {
					t.Errorf("it answered with the status %d, want %d", got, cmp.Or(tt.status, 1000))
				}
			}
		})
	}
}

// A frame's claim costs nothing: what is read goes where the reader wants it.
func TestWebSocketFrameOf4GBAllocatesNothing(t *testing.T) {
	in := longFrame('\x82', 4<<30, strings.Repeat("x", 1<<20))
	buf := make([]byte, 4096)
	allocs := testing.AllocsPerRun(10, func() {
		conn := websocket.NewConn(&script{Reader: strings.NewReader(in)}, true, nil)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
		}
	})
	if allocs > 20 {
		t.Errorf("got %v allocations, want a few", allocs)
	}
}

// The peer sends pings without end and takes no byte: the data between them
// arrives, and no more than one answer waits.
func TestWebSocketPingsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		conn := websocket.NewConn(a, true, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 10_000 {
				io.WriteString(b, "\x89\x04ping")
			}
			io.WriteString(b, "\x82\x05hello")
		})
		got := make([]byte, 5)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
		wg.Wait()
		synctest.Wait()
		for range 2 { // one was under way, one waited
			pong := make([]byte, 2+4+4)
			if _, err := io.ReadFull(b, pong); err != nil || pong[0] != 0x8a || pong[1] != 0x80|4 {
				t.Errorf("got %q, %v; want a pong of 4 bytes", pong, err)
			}
		}
		synctest.Wait()
		began := time.Now()
		conn.Close() // nobody reads its Close frame
		if got := time.Since(began); got != socket.CloseTimeout {
			t.Errorf("Close took %v, want %v", got, socket.CloseTimeout)
		}
		b.Close()
	})
}

// slowScript takes a write only when it is told to.
type slowScript struct {
	script
	take chan struct{}
}

func (s *slowScript) Write(p []byte) (int, error) {
	<-s.take
	return s.script.Write(p)
}

// A Close while a pong is being sent says why, too.
func TestWebSocketCloseDuringPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := &slowScript{script{Reader: strings.NewReader("\x89\x01!")}, make(chan struct{})}
		conn := websocket.NewConn(peer, true, nil)
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Fatal("got a byte, want the end")
		}
		synctest.Wait()
		go conn.Close()
		synctest.Wait()
		close(peer.take)
		synctest.Wait()
		if got := closeStatus(peer.written.Bytes(), true); got != 1000 {
			t.Errorf("it answered with the status %d, want 1000", got)
		}
	})
}

// Who writes while Close says goodbye waits as long; see TestSendDuringClose.
func TestWebSocketWriteDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		conn := websocket.NewConn(a, true, nil)
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { conn.Close() })
		synctest.Wait()
		if _, err := io.WriteString(conn, "late"); err == nil {
			t.Error("something was written after Close")
		}
		if took := time.Since(began); took != socket.CloseTimeout {
			t.Errorf("it took %v, want %v", took, socket.CloseTimeout)
		}
		wg.Wait()
	})
}

func TestWebSocketAnswersPings(t *testing.T) {
	for _, payload := range []string{"", "are you there?", strings.Repeat("x", 125)} {
		a, b := net.Pipe()
		conn := websocket.NewConn(a, false, nil)
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, conn) })
		b.Write(append([]byte{0x89, byte(0x80 | len(payload)), 0, 0, 0, 0}, payload...))
		got := make([]byte, 2+len(payload))
		if _, err := io.ReadFull(b, got); err != nil || got[0] != 0x8a || string(got[2:]) != payload {
			t.Errorf("got %q, %v; want a pong with %q", got, err, payload)
		}
		b.Close()
		wg.Wait()
		conn.Close()
	}
}

// golang.org/x/net/websocket is another implementation of RFC 6455.
func TestWebSocketInterop(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	echo := func(t *testing.T, conn net.Conn) {
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, n := range []int{1, 125, 126, 65535, 65536, 300_000} {
				if _, err := conn.Write(data[:n]); err != nil {
					t.Error(err)
				}
			}
		})
		for _, n := range []int{1, 125, 126, 65535, 65536, 300_000} {
			got := make([]byte, n)
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, data[:n]) {
				t.Errorf("%d bytes: got others, error %v", n, err)
			}
		}
		wg.Wait()
		conn.Close()
	}
	t.Run("their server", func(t *testing.T) {
		server := httptest.NewServer(xwebsocket.Server{
			Handshake: func(config *xwebsocket.Config, _ *http.Request) error { return nil },
			Handler: func(ws *xwebsocket.Conn) {
				ws.PayloadType = xwebsocket.BinaryFrame
				io.Copy(ws, ws)
			},
		})
		defer server.Close()
		address := server.Listener.Addr().String()
		raw, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := connect(testContext(t), raw, "ws://"+address)
		if err != nil {
			t.Fatal(err)
		}
		echo(t, conn)
	})
	t.Run("their client", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			raw, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				err = websocket.SwitchProtocols(raw, r)
			}
			if err != nil {
				t.Error(err)
				return
			}
			conn := websocket.NewConn(raw, false, nil)
			io.Copy(conn, conn)
			conn.Close()
		}))
		defer server.Close()
		ws, err := xwebsocket.Dial("ws://"+server.Listener.Addr().String(), "causeway.v1", "http://origin.test")
		if err != nil {
			t.Fatal(err)
		}
		ws.PayloadType = xwebsocket.BinaryFrame
		echo(t, ws)
	})
}

// FuzzWebSocketFrames: how the bytes are cut does not matter to what is read.
func FuzzWebSocketFrames(f *testing.F) {
	for _, s := range []string{"\x82\x05hello", "\x02\x02he\x89\x01!\x80\x03llo", "\x88\x00", "\x82\x7e\x00\x80" + strings.Repeat("x", 128), longFrame('\x82', 3, "abc")} {
		f.Add([]byte(s), true)
	}
	f.Add([]byte("\x82\x85\x01\x02\x03\x04igohn"), false)
	f.Fuzz(func(t *testing.T, in []byte, client bool) {
		read := func(r io.Reader, size int) (string, error) {
			conn := websocket.NewConn(&script{Reader: r}, client, nil)
			defer conn.Close()
			var got bytes.Buffer
			_, err := io.CopyBuffer(&got, struct{ io.Reader }{conn}, make([]byte, size))
			if got.Len() > len(in) {
				t.Errorf("got %d bytes of %d", got.Len(), len(in))
			}
			return got.String(), err
		}
		one, err1 := read(bytes.NewReader(in), 4096)
		two, err2 := read(iotest.OneByteReader(bytes.NewReader(in)), 3)
		if one != two || (err1 == nil) != (err2 == nil) || err1 != nil && !errors.Is(err1, err2) && err1.Error() != err2.Error() {
			t.Errorf("at once %q, %v; byte by byte %q, %v", one, err1, two, err2)
		}
	})
}
