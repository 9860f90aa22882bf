package dialer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
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

// The seeds of the fuzz targets are files: they run with every test.
func TestFuzzSeeds(t *testing.T) {
	for _, target := range []string{"FuzzHTTPReply", "FuzzSOCKS5Reply"} {
		seeds, err := os.ReadDir(filepath.Join("testdata", "fuzz", target))
		if err != nil || len(seeds) < 5 {
			t.Errorf("%s: got %d seeds, %v", target, len(seeds), err)
		}
	}
}

func FuzzHTTPReply(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzDial(t, data, func(forward dialer.Dialer) dialer.Dialer {
			return &dialer.HTTPConnect{Addr: "proxy:3128", Auth: &rounds{}, Forward: forward, Timeout: time.Minute}
		})
	})
}

func FuzzSOCKS5Reply(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzDial(t, data, func(forward dialer.Dialer) dialer.Dialer {
			return &dialer.SOCKS5{Addr: "proxy:1080", Credentials: dialer.Password("u", "p"), Forward: forward, Timeout: time.Minute}
		})
	})
}
