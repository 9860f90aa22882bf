package tunnel

import (
	"context"
	"net"
	"time"
)

const defaultUserTimeout = 30 * time.Second

// TCP is the Transport for addresses of the form host:port. The zero value is
// ready for use.
type TCP struct {
	// UserTimeout is how long sent data may stay unacknowledged before the
	// kernel gives the connection up (RFC 5482). Zero: 30 s; negative: the
	// system's. It has an effect on Linux alone.
	UserTimeout time.Duration
}

var _ Transport = TCP{}

// Dial connects to host:port.
func (t TCP) Dial(ctx context.Context, dial DialFunc, address string) (net.Conn, error) {
	conn, err := dialOrDefault(dial)(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tune(conn, t.UserTimeout)
	return conn, nil
}

// Listen waits for connections at host:port. An empty host is every address,
// port 0 one that the system chooses.
func (t TCP) Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return tcpListener{l, t.UserTimeout}, nil
}

// tcpListener tunes what it accepts.
type tcpListener struct {
	net.Listener
	userTimeout time.Duration
}

func (l tcpListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		tune(conn, l.userTimeout)
	}
	return conn, err
}

// tuned is for a listener that may be one of package net.
func tuned(l net.Listener) net.Listener {
	if plain, ok := l.(*net.TCPListener); ok {
		return tcpListener{plain, 0}
	}
	return l
}

// tune sets the options of the TCP connection below conn, if there is one. It
// is no error if the system has none of them: the session's keepalive is what
// finds a dead peer for certain.
func tune(conn net.Conn, userTimeout time.Duration) {
	tc, ok := lowest(conn).(*net.TCPConn)
	if !ok {
		return
	}
	if userTimeout == 0 {
		userTimeout = defaultUserTimeout
	}
	tuneTCP(tc, userTimeout)
}
