package carrier_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// rawFrame is a frame made by hand, which claims a length and has the payload.
// Clients mask, here with zeros, which change nothing.
func rawFrame(client bool, first byte, claimed int, payload string) string {
	b := []byte{first}
	switch {
	case claimed <= 125:
		b = append(b, byte(claimed))
	case claimed < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(claimed))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(claimed))
	}
	if client {
		b[1] |= 0x80
		b = append(b, 0, 0, 0, 0)
	}
	return string(b) + payload
}

// A WebSocket ends by a Close frame only. Wherever TCP ends without one, between
// frames too, the reader learns that something may be missing.
func TestWebSocketEndsByCloseFrameOnly(t *testing.T) {
	tests := []struct {
		name string
		say  func(client bool) string
		want string
		end  error // of io.ReadAll
	}{
		{"nothing", func(bool) string { return "" }, "", io.ErrUnexpectedEOF},
		{"in a header", func(bool) string { return "\x82" }, "", io.ErrUnexpectedEOF},
		{"in two bytes of length", func(client bool) string { return rawFrame(client, 0x82, 300, "")[:3] }, "", io.ErrUnexpectedEOF},
		{"in eight bytes of length", func(client bool) string { return rawFrame(client, 0x82, 1<<17, "")[:6] }, "", io.ErrUnexpectedEOF},
		{"behind a header", func(client bool) string { return rawFrame(client, 0x82, 3, "") }, "", io.ErrUnexpectedEOF},
		{"in a payload", func(client bool) string { return rawFrame(client, 0x82, 4, "ab") }, "ab", io.ErrUnexpectedEOF},
		{"in a long payload", func(client bool) string { return rawFrame(client, 0x82, 1<<17, "ab") }, "ab", io.ErrUnexpectedEOF},
		{"between fragments", func(client bool) string { return rawFrame(client, 0x02, 2, "ab") }, "ab", io.ErrUnexpectedEOF},
		{"between frames", func(client bool) string { return rawFrame(client, 0x82, 2, "ab") }, "ab", io.ErrUnexpectedEOF},
		{"in a ping", func(client bool) string { return rawFrame(client, 0x89, 4, "ab") }, "", io.ErrUnexpectedEOF},
		{"behind a pong", func(client bool) string { return rawFrame(client, 0x8a, 2, "ab") }, "", io.ErrUnexpectedEOF},
		{"in a Close frame", func(client bool) string { return rawFrame(client, 0x88, 2, "\x03") }, "", io.ErrUnexpectedEOF},
		{"behind a Close frame", func(client bool) string {
			return rawFrame(client, 0x82, 2, "ab") + rawFrame(client, 0x88, 2, "\x03\xe8")
		}, "ab", nil},
		{"behind an empty Close frame", func(client bool) string { return rawFrame(client, 0x88, 0, "") }, "", nil},
	}
	for _, tt := range tests {
		for _, role := range []struct {
			name   string
			client bool // who sends, by plain sockets
			open   func(t *testing.T) (ours net.Conn, theirs net.Conn)
		}{
			{"a client sends", true, rawWebSocketClient},
			{"a server sends", false, rawWebSocketServer},
		} {
			t.Run(tt.name+", "+role.name, func(t *testing.T) {
				ours, theirs := role.open(t)
				if _, err := io.WriteString(theirs, tt.say(role.client)); err != nil {
					t.Fatal(err)
				}
				theirs.Close()
				got, err := io.ReadAll(ours)
				if string(got) != tt.want || !errors.Is(err, tt.end) {
					t.Errorf("got %q, %v; want %q, %v", got, err, tt.want, tt.end)
				}
				if more, err := io.ReadAll(ours); len(more) != 0 || !errors.Is(err, tt.end) {
					t.Errorf("got %q, %v the second time, want %v", more, err, tt.end)
				}
			})
		}
	}
}

// rawWebSocketClient speaks to a listener of ours by plain TCP.
func rawWebSocketClient(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l := carrier.ListenWebSocket(listen(t), nil)
	t.Cleanup(func() { l.Close() })
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	io.WriteString(theirs, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(theirs), nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v, want 101", res, err)
	}
	ours, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return ours, theirs
}

// rawWebSocketServer has a Dial of ours come to plain TCP.
func rawWebSocketServer(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l := listen(t)
	defer l.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		if theirs, err = l.Accept(); err != nil {
			t.Error(err)
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(theirs))
		if err != nil {
			t.Error(err)
			return
		}
		if err := websocket.SwitchProtocols(theirs, req); err != nil {
			t.Error(err)
		}
	})
	ours, err := dialWebSocket(testContext(t), nil, "ws://"+l.Addr().String(), nil)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	return ours, theirs
}

// halving writes half of what comes once it is told to, and closes.
type halving struct {
	net.Conn
	armed atomic.Bool
}

func (h *halving) Write(p []byte) (int, error) {
	if !h.armed.Load() {
		return h.Conn.Write(p)
	}
	n, _ := h.Conn.Write(p[:len(p)/2])
	h.Conn.Close()
	return n, net.ErrClosed
}

// crypto/tls takes an error that is io.ErrUnexpectedEOF itself for an end where
// one of its records ends. A connection that says so, as the outer TLS of a
// wss does when it is cut in a record, must not be taken for a whole one.
func TestCutInTheRecordOfAnOuterTLS(t *testing.T) {
	for _, tt := range []struct {
		name string
		wrap func(outer net.Conn, client bool) net.Conn
	}{
		{"a Transport of one's own", func(outer net.Conn, _ bool) net.Conn { return outer }},
		{"WebSocket", func(outer net.Conn, client bool) net.Conn { return websocket.NewConn(outer, client, nil) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := ends(t, tcp())
			cut := &halving{Conn: a}
			outer := handshaken(t, cut, b)
			agent, server := carriers(t, tt.wrap(outer[0], true), tt.wrap(outer[1], false))
			flushing{agent}.Write([]byte("half"))
			cut.armed.Store(true)
			flushing{agent}.Write([]byte("lost"))
			if got, err := io.ReadAll(server); string(got) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %q, %v; want what was sent and an unexpected EOF", got, err)
			}
		})
	}
}

// handshaken are the two ends of a TLS.
func handshaken(t *testing.T, client, server net.Conn) [2]net.Conn {
	t.Helper()
	c, s := tls.Client(client, pki.ClientTLS()), tls.Server(server, pki.ServerTLS())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.HandshakeContext(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.HandshakeContext(testContext(t)); err != nil {
		t.Error(err)
	}
	wg.Wait()
	return [2]net.Conn{c, s}
}

// TestCloseFrameInASession: who closes a WebSocket without a reason has closed it, and the
// connection was not cut.
func TestCloseFrameInASession(t *testing.T) {
	for name, payload := range map[string]string{"1000": "\x03\xe8", "no code": ""} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t, tcp())
			_, server := carriers(t, websocket.NewConn(a, true, nil), websocket.NewConn(b, false, nil))
			io.WriteString(a, rawFrame(true, 0x88, len(payload), payload))
			const want = "closed the WebSocket with the code 1000 or without one"
			if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
