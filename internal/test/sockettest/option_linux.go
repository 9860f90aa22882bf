package sockettest

import (
	"net"
	"syscall"
	"testing"
)

// Option returns a TCP option of the socket below conn.
func Option(t *testing.T, conn net.Conn, opt int) int {
	t.Helper()
	for {
		n, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = n.NetConn()
	}
	rc, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var value int
	rc.Control(func(fd uintptr) {
		if value, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, opt); err != nil {
			t.Error(err)
		}
	})
	return value
}
