// Package abort closes connections that have failed: at once, and so that the peer
// sees that it was no regular end.
package abort

import "net"

// Close closes conn without TLS's close_notify, which would wait for seconds for a
// peer that has stopped reading: it closes the connection below TLS first. Reads and
// writes that are waiting return.
func Close(conn net.Conn) {
	bottom := innermostConn(conn)
	bottom.Close()
	if bottom != conn {
		conn.Close() // a wrapper may count connections
	}
}

// Reset closes conn so that its peer sees a reset and not an end, if that is possible:
// by the method Reset(code uint32) error of the outermost connection that has one, or
// by an RST of TCP. Any other connection is closed by [Close]; with TLS the peer sees
// an unexpected end.
func Reset(conn net.Conn, code uint32) {
	bottom := innermostConn(conn)
	switch c := bottom.(type) {
	case connResetter:
		c.Reset(code)
	case *net.TCPConn:
		c.SetLinger(0)
	}
	Close(conn)
}

// Guard has the system reset conn, if it is TCP, in case the process is killed: its end
// would look like a regular one. Unguard ends that: call it before a regular Close, which
// would else reset conn and lose what was not sent yet.
func Guard(conn net.Conn) { setLinger(conn, 0) }

// Unguard: see [Guard].
func Unguard(conn net.Conn) { setLinger(conn, -1) }

func setLinger(conn net.Conn, seconds int) {
	if c, ok := innermostConn(conn).(*net.TCPConn); ok {
		c.SetLinger(seconds)
	}
}

type connResetter interface{ Reset(code uint32) error }

// innermostConn follows NetConn, as *tls.Conn has it, and returns the first connection
// that has a method Reset, or else the last.
func innermostConn(conn net.Conn) net.Conn {
	for {
		if _, ok := conn.(connResetter); ok {
			return conn
		}
		w, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		inner := w.NetConn()
		if inner == nil {
			return conn
		}
		conn = inner
	}
}
