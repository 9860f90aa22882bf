package socket

import (
	"net"
	"time"
)

const defaultUserTimeout = 30 * time.Second

// TuneListener returns a listener that tunes what l accepts. A listener that is
// not of package net is returned as it is: it has tuned its connections itself, or
// they are not of TCP.
func TuneListener(l net.Listener, userTimeout time.Duration) net.Listener {
	if plain, ok := l.(*net.TCPListener); ok {
		return tunedListener{plain, userTimeout}
	}
	return l
}

type tunedListener struct {
	net.Listener
	userTimeout time.Duration
}

func (l tunedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		Tune(conn, l.userTimeout)
	}
	return conn, err
}

// Tune sets the options of the TCP connection at the bottom of conn, if there is
// one: how long sent data may stay unacknowledged (zero: 30 s; negative: as the
// system has it), and how much data that was not sent the kernel takes. A system
// may have neither: a dead peer is found by the session's keepalive in any case.
func Tune(conn net.Conn, userTimeout time.Duration) {
	tc, ok := Innermost(conn).(*net.TCPConn)
	if !ok {
		return
	}
	if userTimeout == 0 {
		userTimeout = defaultUserTimeout
	}
	tuneTCP(tc, userTimeout)
}
