//go:build !386 && !s390x

package socket

import (
	"encoding/binary"
	"net"
	"syscall"
	"time"
	"unsafe"
)

// flowOf returns what the kernel knows of the connection (struct tcp_info in linux/tcp.h); zero if
// it is an old one.
func flowOf(tc *net.TCPConn) (f flow) {
	var info [228]byte
	size := uint32(len(info))
	rc, err := tc.SyscallConn()
	if err != nil {
		return f
	}
	rc.Control(func(fd uintptr) {
		syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	field := func(offset int) uint32 { return binary.NativeEndian.Uint32(info[offset:]) }
	return flow{
		waits: field(24) > 0, delivered: field(192), early: field(224),
		heard: time.Now().Add(-time.Duration(field(56)) * time.Millisecond),
	}
}
