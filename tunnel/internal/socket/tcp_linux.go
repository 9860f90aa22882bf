package socket

import (
	"net"
	"syscall"
)

// tcpNotSentLowat is an option of linux/tcp.h, the same on every architecture, in bytes.
const tcpNotSentLowat = 25

// setUnsent sets how much unsent data the kernel takes. It does not set how long sent data may stay
// unacknowledged (TCP_USER_TIMEOUT): the kernel counts a reader that always leaves a small window
// as one that takes nothing.
func setUnsent(tc *net.TCPConn, unsent int) {
	rc, err := tc.SyscallConn()
	if err != nil {
		return
	}
	rc.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, unsent)
	})
}
