//go:build !linux

package socket

import "net"

func setUnsent(*net.TCPConn, int) {}
