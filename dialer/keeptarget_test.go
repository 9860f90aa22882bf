package dialer_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

func TestKeepTarget(t *testing.T) {
	early := strings.Repeat("early ", 100)
	proxy := &dialer.HTTPConnect{Addr: scripted(t, false, "HTTP/1.1 200 OK\r\n\r\n"+early)}
	conn, err := dialer.KeepTarget{Dialer: proxy}.DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); got != proxy.Addr {
		t.Errorf("RemoteAddr: got %s, want the proxy's, %s", got, proxy.Addr)
	}
	for _, c := range []net.Conn{conn, tls.Client(conn, &tls.Config{})} {
		if got, ok := dialer.Target(c); got != target || !ok {
			t.Errorf("Target of a %T: got %q, %t", c, got, ok)
		}
	}
	exchange(t, conn, early)

	raw, err := proxy.DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if got, ok := dialer.Target(raw); ok {
		t.Errorf("without KeepTarget: got %q", got)
	}
	_, err = dialer.KeepTarget{Dialer: &dialer.SOCKS5{}}.DialContext(testContext(t), "tcp", target)
	var e *dialer.Error
	if !errors.As(err, &e) {
		t.Errorf("got %v, want the dialer's error", err)
	}
}

func TestKeepTargetConns(t *testing.T) {
	d := dialer.KeepTarget{Dialer: &dialer.SOCKS5{Addr: serve(t, listen(t), (&proxytest.SOCKS5{}).Handle)}}
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(d, "") })
}

// The zero value dials directly, and io.Copy writes nothing that was not read.
func TestKeepTargetDirect(t *testing.T) {
	addr := serve(t, listen(t), echo)
	conn, err := dialer.KeepTarget{}.DialContext(testContext(t), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, _ := dialer.Target(conn); got != addr {
		t.Errorf("got %q, want %q", got, addr)
	}
	io.WriteString(conn, "hello")
	conn.(interface{ CloseWrite() error }).CloseWrite()
	w := &writes{}
	if _, err := io.Copy(w, conn); err != nil || w.String() != "hello" || w.empty {
		t.Errorf("got %q, %v, an empty write: %t", w, err, w.empty)
	}
}

type writes struct {
	bytes.Buffer
	empty bool
}

func (w *writes) Write(p []byte) (int, error) {
	w.empty = w.empty || len(p) == 0
	return w.Buffer.Write(p)
}

// Without this, io.Copy would read instead of letting the conn write.
func (w *writes) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{w}, r)
}
