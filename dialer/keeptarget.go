package dialer

import (
	"context"
	"net"
)

// KeepTarget makes the connections of Dialer remember what they were dialed
// for, which [Target] tells.
//
// A connection through a proxy has the proxy's RemoteAddr, and is the raw one
// wherever it can be, so that it can be spliced: it has no place for the
// target. The ones of KeepTarget are wrapped. They have CloseWrite, io.Copy
// still splices, and NetConn returns the raw one.
type KeepTarget struct {
	// Dialer makes the connections. If nil, Direct.
	Dialer Dialer
}

var _ Dialer = KeepTarget{}

// DialContext dials address and keeps it.
func (d KeepTarget) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := forwardOrDirect(d.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &targetConn{bufferedConn{Conn: conn}, address}, nil
}

type targetConn struct {
	bufferedConn
	target string
}

func (c *targetConn) dialTarget() string { return c.target }

// Target returns the host:port that conn was dialed for, as it was given to
// the outermost [KeepTarget]. It looks through connections that have NetConn,
// such as a *tls.Conn. ok is false if no KeepTarget made it.
func Target(conn net.Conn) (address string, ok bool) {
	for {
		switch c := conn.(type) {
		case interface{ dialTarget() string }:
			return c.dialTarget(), true
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return "", false
		}
	}
}
