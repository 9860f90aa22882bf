package dialer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
)

// replay is a connection to a proxy that says what it says, whatever it is
// asked.
type replay struct {
	net.Conn
	r      *bytes.Reader
	closed bool
}

func (c *replay) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c *replay) Write(p []byte) (int, error) { return len(p), nil }
func (c *replay) Close() error                { c.closed = true; return nil }

// fuzzDial dials through a proxy that says data, and checks what holds for
// any data: a conn that yields an end of data, or an *Error and a closed conn.
func fuzzDial(t *testing.T, data []byte, newDialer func(forward dialer.Dialer) dialer.Dialer) {
	var conns []*replay
	d := newDialer(dialer.Func(func(context.Context, string, string) (net.Conn, error) {
		conns = append(conns, &replay{r: bytes.NewReader(data)})
		return conns[len(conns)-1], nil
	}))
	conn, err := d.DialContext(t.Context(), "tcp", target)
	if err != nil {
		var e *dialer.Error
		if !errors.As(err, &e) || e.Err == nil || e.Error() == "" {
			t.Fatalf("got %#v, want an *Error", err)
		}
	} else {
		rest, err := io.ReadAll(conn)
		if err != nil || !bytes.HasSuffix(data, rest) {
			t.Fatalf("got %q, %v; want an end of %q", rest, err, data)
		}
		conns = conns[:len(conns)-1]
	}
	for _, c := range conns {
		if !c.closed {
			t.Fatal("a connection was left open")
		}
	}
}

func FuzzHTTPReply(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\n\r\nearly",
		"HTTP/1.0 200\n\n",
		"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nnoHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 407\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 502 Bad Gateway\r\nX-Squid-Error: ERR 0\r\n\r\n<html>",
		"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
		"\x15\x03\x01\x00\x02\x02\x46",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzDial(t, data, func(forward dialer.Dialer) dialer.Dialer {
			return &dialer.HTTPConnect{Addr: "proxy:3128", Auth: &rounds{}, Forward: forward, Timeout: time.Minute}
		})
	})
}

func FuzzSOCKS5Reply(f *testing.F) {
	for _, seed := range []string{
		"\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00early",
		"\x05\x02\x01\x00\x05\x00\x00\x03\x05bound\x00\x00",
		"\x05\x02\x01\x01",
		"\x05\xff",
		"\x05\x00\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00",
		"\x05\x00\x05\x00\x00\x04" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzDial(t, data, func(forward dialer.Dialer) dialer.Dialer {
			return &dialer.SOCKS5{Addr: "proxy:1080", Credentials: dialer.Password("u", "p"), Forward: forward, Timeout: time.Minute}
		})
	})
}
