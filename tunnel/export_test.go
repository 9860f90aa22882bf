package tunnel

import (
	"crypto/tls"
	"net"
	"net/http"
)

// What the tests of the package see of its inside.

type Carrier = carrier

// State is the carrier's state.
func (c *carrier) State() *tls.ConnectionState { return c.state() }

var (
	Secure       = secure
	TransportFor = transportFor
	HostOf       = hostOf
	LowMarkFor   = lowMarkFor
	Tuned        = tuned
)

func NewWSConn(conn net.Conn, client bool, early []byte) net.Conn {
	return newWSConn(conn, client, early)
}

func WebSocketHandler(serve func(net.Conn)) http.Handler { return websocketHandler(serve) }

const (
	CloseWait  = closeWait
	MinLowMark = minLowMark
	MaxLowMark = maxLowMark
)
