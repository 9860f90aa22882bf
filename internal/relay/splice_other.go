//go:build !linux

package relay

import "net"

// splice can't.
func spliceConns(net.Conn, net.Conn) (n int64, done bool, err error) { return 0, false, nil }
