package carrier_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// upgradeClient is the connection of a client that sends in pieces what it has
// to say, and keeps what it is told.
type upgradeClient struct {
	net.Conn // for what is not used
	rest     []byte
	piece    int
	read     int // before the answer
	told     bytes.Buffer
}

func (c *upgradeClient) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.piece)], c.rest)
	c.rest = c.rest[n:]
	if c.told.Len() == 0 {
		c.read += n
	}
	return n, nil
}

func (c *upgradeClient) Write(p []byte) (int, error)     { return c.told.Write(p) }
func (c *upgradeClient) Close() error                    { return nil }
func (c *upgradeClient) SetDeadline(time.Time) error     { return nil }
func (c *upgradeClient) SetReadDeadline(time.Time) error { return nil }
func (c *upgradeClient) LocalAddr() net.Addr             { return &net.TCPAddr{} }
func (c *upgradeClient) RemoteAddr() net.Addr            { return &net.TCPAddr{} }

// endOfHead is the first empty line.
var endOfHead = regexp.MustCompile(`\n\r?\n`)

const upgradeRequest = "GET /agent HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n"

// FuzzUpgrade: whatever a stranger sends to a WebSocket listener, little of it is
// read and little is allocated, and a request gets one answer of HTTP, no matter
// how its bytes are cut. What comes after it is the WebSocket's.
func FuzzUpgrade(f *testing.F) {
	f.Add([]byte(upgradeRequest), uint16(1))
	f.Add([]byte(upgradeRequest+"\x82\x85\x01\x02\x03\x04igohn\r\n\r\n"), uint16(200))
	f.Add([]byte(strings.ReplaceAll(upgradeRequest, "\r", "")+"\x82\x85\x01\x02\x03\x04igohn"), uint16(4096))
	f.Add([]byte(strings.ReplaceAll(upgradeRequest, "\r", "")+"\x82\x84\x00\x00\x00\x00\r\n\r\n"), uint16(4096))
	f.Add([]byte("GET / HTTP/1.1\nHost: x\n\r\n"), uint16(4096))
	f.Add([]byte(strings.Replace(upgradeRequest, "\r\n\r\n", "\r\nContent-Length: 2\r\n\r\nhi", 1)), uint16(7))
	f.Add([]byte(strings.Replace(upgradeRequest, "GET", "POST", 1)), uint16(512))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), uint16(512))
	f.Add([]byte("GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 9000)), uint16(4096))
	f.Add([]byte("GET / HTTP/1.1\r\n"+strings.Repeat("X:\r\n", 3000)+"\r\n"), uint16(4096))
	f.Add([]byte("\x16\x03\x01\x00\x05hello\n\n"), uint16(2))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n"), uint16(512))
	f.Fuzz(func(t *testing.T, in []byte, piece uint16) {
		c := &upgradeClient{rest: in, piece: int(piece) + 1}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		conn, err := carrier.Upgrade(t.Context(), c)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 512<<10 {
			t.Errorf("%d bytes took %d", len(in), n)
		}
		if c.read > carrier.MaxUpgradeRequest {
			t.Errorf("%d bytes were read before an answer", c.read)
		}
		head := endOfHead.FindIndex(in[:min(len(in), carrier.MaxUpgradeRequest)])
		if head == nil && len(in) < carrier.MaxUpgradeRequest {
			if err == nil || c.told.Len() > 0 {
				t.Errorf("got %v and %q, want nothing before the request is whole", err, c.told.Bytes())
			}
			return
		}
		checkUpgradeAnswer(t, c.told.Bytes(), err == nil)
		if err == nil {
			checkUpgraded(t, conn, in[head[1]:])
		}
	})
}

// checkUpgradeAnswer checks that there is one answer, and that it says what
// became of the request.
func checkUpgradeAnswer(t *testing.T, told []byte, upgraded bool) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(told))
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("got %q, no answer: %v", told, err)
	}
	body, err := io.ReadAll(res.Body)
	if r.Buffered() > 0 || err != nil {
		t.Errorf("got %q, %v after the answer", told[len(told)-r.Buffered():], err)
	}
	switch res.StatusCode {
	case http.StatusSwitchingProtocols:
		if !upgraded || len(body) > 0 || len(res.Header["Sec-Websocket-Accept"]) != 1 {
			t.Errorf("got the answer %q, upgraded: %t", told, upgraded)
		}
	case http.StatusUpgradeRequired, http.StatusBadRequest:
		if upgraded || len(body) == 0 || !res.Close || res.ContentLength != int64(len(body)) {
			t.Errorf("got the answer %q, upgraded: %t", told, upgraded)
		}
	default:
		t.Errorf("got the answer %q", told)
	}
}

// checkUpgraded checks that the WebSocket reads what came after the request.
func checkUpgraded(t *testing.T, conn net.Conn, frames []byte) {
	t.Helper()
	got, err := io.ReadAll(conn)
	want, wantErr := io.ReadAll(websocket.NewConn(&upgradeClient{rest: frames, piece: len(frames) + 1}, false, nil))
	if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
		t.Errorf("got %q, %v from the WebSocket; want %q, %v", got, err, want, wantErr)
	}
}
