//go:build unix

package socket_test

import (
	"net"
	"testing"

	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// A socket may be woken for nothing.
func TestIdleOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n := socket.Idles(a); n != 1 {
		t.Errorf("got %d calls, want 1", n)
	}
}
