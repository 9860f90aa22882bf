//go:build !linux

package socket

import (
	"net"
	"time"
)

func tuneTCP(*net.TCPConn, time.Duration) {}

func setUnsentLimit(*net.TCPConn, int) {}
