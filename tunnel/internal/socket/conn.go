package socket

import (
	"net"
	"time"
)

// CloseTimeout is how long a Close may take to say goodbye to a peer that reads
// nothing.
const CloseTimeout = 100 * time.Millisecond

// Innermost returns the connection at the bottom of conn, as far as the method
// NetConn leads.
func Innermost(conn net.Conn) net.Conn {
	for {
		n, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		below := n.NetConn()
		if below == nil {
			return conn
		}
		conn = below
	}
}

// CloseAfter closes the innermost connection of conn after a while, unless stop
// is called before. It bounds a call that has no deadline of its own.
func CloseAfter(conn net.Conn, wait time.Duration) (stop func() bool) {
	return time.AfterFunc(wait, func() { Innermost(conn).Close() }).Stop
}

// Flush sends what conn has gathered, if it gathers.
func Flush(conn net.Conn) error {
	if f, ok := conn.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}
