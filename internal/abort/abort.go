// Package abort ends connections that have gone wrong: at once, and so that
// the other side can tell.
package abort

import "net"

// Close closes conn without a goodbye. What is below TLS is closed first: a
// peer that has stopped reading would keep a close_notify waiting for seconds.
// Reads and writes that are under way end.
func Close(conn net.Conn) {
	bottom := below(conn)
	bottom.Close()
	if bottom != conn {
		conn.Close() // who wraps it may keep count
	}
}

// Reset closes conn so that its peer sees a reset and not an end, where there
// is a way to say so: by the method Reset(code uint32) error of the first
// connection that has one, by an RST of TCP. Any other is closed as by
// [Close]; what the peer makes of it is up to its protocol: for TLS it is an
// unexpected end.
func Reset(conn net.Conn, code uint32) {
	bottom := below(conn)
	switch c := bottom.(type) {
	case resetter:
		c.Reset(code)
	case *net.TCPConn:
		c.SetLinger(0)
	}
	Close(conn)
}

type resetter interface{ Reset(code uint32) error }

// below returns what carries conn: the first connection that can be reset, or
// else the innermost of those that wrap each other, as *tls.Conn does.
func below(conn net.Conn) net.Conn {
	for {
		if _, ok := conn.(resetter); ok {
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
