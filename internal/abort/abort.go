// Package abort closes connections that have failed: at once, and so that the peer
// sees that it was no regular end.
package abort

import (
	"errors"
	"net"
	"os"
)

// Close closes conn without TLS's close_notify, which would wait for seconds for a
// peer that has stopped reading: it closes the connection below TLS first. Reads and
// writes that are waiting return.
func Close(conn net.Conn) {
	bottom, wrapped := innermostConn(conn)
	bottom.Close()
	if wrapped {
		conn.Close() // a wrapper may count connections
	}
}

// Reset closes conn so that its peer sees a reset and not an end, if that is possible:
// by the method Reset(code uint32) error of the outermost connection that has one, or
// by an RST of TCP. Any other connection is closed by [Close]; with TLS the peer sees
// an unexpected end.
func Reset(conn net.Conn, code uint32) {
	bottom, _ := innermostConn(conn)
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

// Gone returns an error if conn is TCP and was reset, of which a connection that has sent its end is not
// read again. It waits for a Write that is under way.
func Gone(conn net.Conn) error {
	bottom, _ := innermostConn(conn)
	c, ok := bottom.(*net.TCPConn)
	if !ok {
		return nil
	}
	_, err := c.Write(nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

func setLinger(conn net.Conn, seconds int) {
	bottom, _ := innermostConn(conn)
	if c, ok := bottom.(*net.TCPConn); ok {
		c.SetLinger(seconds)
	}
}

type connResetter interface{ Reset(code uint32) error }

// innermostConn follows NetConn, as *tls.Conn has it, and returns the first connection
// that has a method Reset, or else the last; wrapped says that it is another one. The two
// are not compared: a connection may be of a type that can't be.
func innermostConn(conn net.Conn) (bottom net.Conn, wrapped bool) {
	for {
		if _, ok := conn.(connResetter); ok {
			return conn, wrapped
		}
		w, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn, wrapped
		}
		inner := w.NetConn()
		if inner == nil {
			return conn, wrapped
		}
		conn, wrapped = inner, true
	}
}
