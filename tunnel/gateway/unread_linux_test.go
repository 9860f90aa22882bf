package gateway_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// TestUnreadInKernel: the kernel takes little of what a client doesn't read, though nothing there
// counts for the Budget.
func TestUnreadInKernel(t *testing.T) {
	target := &source{left: 1 << 20, taken: make(chan bool)}
	target.Conn, _ = net.Pipe()
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Dial: func(context.Context, gateway.Request) (net.Conn, error) { return target, nil }}
	addr, _ := open(t, g, g.ServeConnect)
	send(t, call(t, addr), rightAsk)
	select {
	case <-target.taken:
		t.Error("all of it was taken")
	case <-time.After(200 * time.Millisecond):
	}
}

// source sends so many bytes, and says when they were read.
type source struct {
	net.Conn
	left  int
	taken chan bool
}

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		close(s.taken)
		return 0, io.EOF
	}
	n := min(len(p), s.left)
	s.left -= n
	return n, nil
}
