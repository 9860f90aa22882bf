//go:build !linux || 386 || s390x

package socket

import "net"

func flowOf(*net.TCPConn) flow { return flow{} }
