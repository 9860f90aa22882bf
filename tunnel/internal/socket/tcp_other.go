//go:build !linux

package socket

import (
	"net"
	"time"
)

func setOptions(*net.TCPConn, time.Duration, int) {}
