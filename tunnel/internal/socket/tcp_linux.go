package socket

import (
	"net"
	"syscall"
	"time"
)

// Options of linux/tcp.h, the same on every architecture.
const (
	tcpUserTimeout  = 18 // milliseconds
	tcpNotSentLowat = 25 // bytes
)

// setOptions sets how long sent data may stay unacknowledged, unless that is zero or
// negative, and how much unsent data the kernel takes.
func setOptions(tc *net.TCPConn, userTimeout time.Duration, unsent int) {
	rc, err := tc.SyscallConn()
	if err != nil {
		return
	}
	rc.Control(func(fd uintptr) {
		if userTimeout > 0 {
			ms := max(1, int(userTimeout/time.Millisecond))
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, ms)
		}
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, unsent)
	})
}
