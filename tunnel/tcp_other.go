//go:build !linux

package tunnel

import (
	"net"
	"time"
)

func tuneTCP(*net.TCPConn, time.Duration) {}

func setLowMark(*net.TCPConn, int) {}
