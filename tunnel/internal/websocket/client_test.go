package websocket_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// connect is Client for the URL.
func connect(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	u, err := websocket.ParseURL(address)
	if err != nil {
		return nil, err
	}
	ws, err := websocket.Client(ctx, conn, u)
	if err != nil {
		return nil, err
	}
	return ws, nil
}

func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"

func TestWebSocketAnswers(t *testing.T) {
	tests := []struct {
		name   string
		answer string // KEY is what the request's key makes
		end    bool   // the server then closes
		want   string // of the error; empty: none
		after  time.Duration
	}{
		{"upgrade", switching + "Sec-WebSocket-Accept: KEY\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n", false, "", 0},
		{"interim answers", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX: y\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + switching + "Sec-WebSocket-Accept: KEY\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n", false, "", 0},
		{"an interim answer, and a refusal", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", false, "403 Forbidden", 0},
		{"interim answers without end", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 3000), false, "larger than 65536 bytes", 0},
		{"an interim answer, and the end", "HTTP/1.1 100 Continue\r\n\r\n", true, "ended before the answer was complete", 0},
		{"refusal", "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno\tagents", false, `403 Forbidden: "no agents"`, 0},
		{"long refusal", "HTTP/1.1 502 Bad Gateway\r\n\r\n" + strings.Repeat("x", 1000), false, `"` + strings.Repeat("x", 200) + `"`, 0},
		{"refusal whose body does not come", "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno", false, `403 Forbidden: "no"`, time.Second},
		{"refusal with what was sent", "HTTP/1.1 403 Forbidden\r\nContent-Length: 46\r\n\r\nhidden Basic dXNlcjpoaWRkZW4= k3y q%3Dhidd%65n", false, `"*** Basic *** *** q%3D***"`, 0},
		{"cut refusal with what was sent", "HTTP/1.1 403 Forbidden\r\n\r\n" + strings.Repeat("x", 196) + "hidden", false, `x***"`, 0},
		{"status with what was sent", "HTTP/1.1 hidden\r\n\r\n", false, `"***"`, 0},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", false, "302 Found", 0},
		{"success without an upgrade", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false, `200 OK: "hi"`, 0},
		{"upgrade to something else", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", false, "no upgrade to WebSocket", 0},
		{"answer to another", switching + "Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n", false, "another request", 0},
		{"no subprotocol", switching + "Sec-WebSocket-Accept: KEY\r\n\r\n", false, "subprotocol", 0},
		{"extension", switching + "Sec-WebSocket-Accept: KEY\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n", false, "extensions", 0},
		{"cut", "HTTP/1.1 101 Swi", true, "unexpected EOF", 0},
		{"nothing", "", true, "unexpected EOF", 0},
		{"no answer", "", false, "deadline exceeded", 5 * time.Second},
		{"no HTTP", "SSH-2.0-OpenSSH\r\n", true, "reading the answer", 0},
		{"a header without an end", "HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X: y\r\n", 1<<20), false, "larger than", 0},
		{"a line without an end", "HTTP/1.1 101 " + strings.Repeat("x", 1<<20), false, "larger than", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				var wg sync.WaitGroup
				wg.Go(func() {
					req, err := http.ReadRequest(bufio.NewReader(b))
					if err != nil {
						t.Error(err)
						return
					}
					answer := strings.Replace(tt.answer, "KEY", accept(req.Header.Get("Sec-WebSocket-Key")), 1)
					io.WriteString(b, answer)
					if tt.end {
						b.Close()
					}
					io.Copy(io.Discard, b)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				conn, err := connect(ctx, a, "ws://user:hidden@server.test?key=k3y")
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				if err != nil && (strings.Contains(err.Error(), "hidd") || strings.Contains(err.Error(), "k3y") || strings.Contains(err.Error(), "dXNlcjpoaWRkZW4") || strings.ContainsAny(err.Error(), "\n\t")) {
					t.Errorf("the error is not fit for a log: %q", err)
				}
				if got := time.Since(began); got != tt.after {
					t.Errorf("it took %v, want %v", got, tt.after)
				}
				if err == nil {
					conn.Close()
				} else if err := a.SetDeadline(time.Time{}); !errors.Is(err, io.ErrClosedPipe) {
					t.Error("the connection was left open")
				}
				wg.Wait()
			})
		})
	}
}

// The first bytes of a server may come with its answer.
func TestWebSocketKeepsEarlyBytes(t *testing.T) {
	a, b := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		req, err := http.ReadRequest(bufio.NewReader(b))
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(b, switching+"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n\x82\x05hello",
			accept(req.Header.Get("Sec-WebSocket-Key")))
		io.Copy(io.Discard, b)
	})
	conn, err := connect(testContext(t), a, "ws://server.test")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	conn.Close()
	wg.Wait()
}

// endingConn ends a context in its Read, and then fails.
type endingConn struct {
	net.Conn
	end func()
	err error
}

func (c endingConn) Read([]byte) (int, error) { c.end(); return 0, c.err }

// TestWebSocketEnd: the end of the context, its cause, and why the handshake failed are in the
// error.
func TestWebSocketEnd(t *testing.T) {
	a, b := net.Pipe()
	go io.Copy(io.Discard, b)
	ctx, cancel := context.WithCancelCause(t.Context())
	why, found := errors.New("why"), errors.New("found")
	_, err := connect(ctx, endingConn{a, func() { cancel(why) }, found}, "ws://server.test")
	for _, is := range []error{context.Canceled, why, found} {
		if !errors.Is(err, is) {
			t.Errorf("got %v, want that errors.Is finds %v", err, is)
		}
	}
}
