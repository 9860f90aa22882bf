package bench

import (
	"context"
	"crypto/tls"
	"net"
)

// loopbackRow has nothing between the client and the target: what the machine
// and the two ends of the measurement can do.
var loopbackRow = row{name: "loopback"}

var limitRow = row{
	name:      "limit",
	newAgent:  newLimitAgent,
	newServer: newLimitServer,
}

// secure makes a connection one over TLS, and does the handshake.
type secure func(conn net.Conn, wrap func(net.Conn) *tls.Conn) (net.Conn, error)

func plainTLS(conn net.Conn, wrap func(net.Conn) *tls.Conn) (net.Conn, error) {
	c := wrap(conn)
	return c, handshake(c)
}

// The server dials a limitAgent. The direction makes no difference to the
// figures; a connection for each stream that waits to be used would.
type limitAgent struct{ *listener }

func newLimitAgent(s *Setup) (agent, error) {
	config, err := serverTLS(s.Dir)
	if err != nil {
		return nil, err
	}
	l, err := listen(func(conn net.Conn) {
		stream, err := plainTLS(conn, func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
		if err != nil {
			return
		}
		serveStream(stream, s.Target, chunkSize)
	})
	return limitAgent{l}, err
}

func (limitAgent) connect(context.Context, string, int) (string, error) { return "", nil }

// serveStream is what an agent does with a stream.
func serveStream(stream net.Conn, target string, chunk int) {
	conn, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		stream.Close()
		return
	}
	relay(stream, conn, chunk)
}

type limitServer struct {
	peer   string
	config *tls.Config
}

func newLimitServer(s *Setup) (server, error) {
	config, err := clientTLS(s.Dir)
	if err != nil {
		return nil, err
	}
	return &limitServer{s.Peer, config}, nil
}

func (*limitServer) addr() string  { return "" }
func (*limitServer) sessions() int { return 0 }
func (*limitServer) Close() error  { return nil }

func (l *limitServer) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", l.peer)
	if err != nil {
		return nil, err
	}
	return plainTLS(conn, func(c net.Conn) *tls.Conn { return tls.Client(c, l.config) })
}
