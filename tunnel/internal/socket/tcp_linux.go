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

func tuneTCP(tc *net.TCPConn, userTimeout time.Duration) {
	rc, err := tc.SyscallConn()
	if err != nil {
		return
	}
	rc.Control(func(fd uintptr) {
		if userTimeout > 0 {
			ms := max(1, int(userTimeout/time.Millisecond))
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, ms)
		}
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, minUnsent)
	})
}

func setUnsentLimit(tc *net.TCPConn, limit int) {
	if rc, err := tc.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) {
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, limit)
		})
	}
}
