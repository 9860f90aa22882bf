package tunnel

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// What the tests of the package see of its inside.

type Carrier = carrier

// State is the carrier's state.
func (c *carrier) State() *tls.ConnectionState { return c.state() }

var (
	HostOf     = hostOf
	LowMarkFor = lowMarkFor
	Tuned      = tuned
)

// Secure is secure with the configuration hardened; config is not changed.
func Secure(ctx context.Context, raw net.Conn, config *tls.Config, server bool) (*Carrier, error) {
	return secure(ctx, raw, hardened(config.Clone()), server)
}

func NewWSConn(conn net.Conn, client bool, early []byte) net.Conn {
	return newWSConn(conn, client, early)
}

func WebSocketHandler(serve func(net.Conn)) http.Handler { return websocketHandler(serve) }

const (
	CloseWait  = closeWait
	MinLowMark = minLowMark
	MaxLowMark = maxLowMark
)

// KnownClusters is of how many clusters the server knows something.
func (s *Server) KnownClusters() int {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return len(s.registry.clusters)
}
