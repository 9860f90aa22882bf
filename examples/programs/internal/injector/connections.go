package injector

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConnections is how many connections the webhook has at once. An API server has one
// for each review that it waits for, and by default at most 200 writes under way.
const maxConnections = 256

// A connLimit bounds the connections of a server. A new one is always accepted. If
// there are too many, one is closed: the oldest that has not sent a request, or else the
// oldest that was never answered, or else the one whose last answer is the oldest. So a
// client that opens connections and asks nothing can only close those in a handshake. The
// zero value is not ready for use: max is required.
type connLimit struct {
	max int

	mu    sync.Mutex // guards conns
	conns map[net.Conn]connUse
}

type connUse struct {
	stage connStage
	at    time.Time // when it was answered, or opened
}

type connStage int

const (
	opened connStage = iota
	asking           // its handshake is over, and a request has begun
	answered
)

func (u connUse) isBefore(other connUse) bool {
	if u.stage != other.stage {
		return u.stage < other.stage
	}
	return u.at.Before(other.at)
}

// track is the ConnState of a server.
func (l *connLimit) track(conn net.Conn, state http.ConnState) {
	if oldest := l.note(conn, state, time.Now()); oldest != nil {
		if t, ok := oldest.(*tls.Conn); ok {
			oldest = t.NetConn() // TLS would wait until its goodbye is written
		}
		oldest.Close()
	}
}

// note returns the connection that is one too many, or nil.
func (l *connLimit) note(conn net.Conn, state http.ConnState, now time.Time) (oldest net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(l.conns) >= l.max {
			for c, use := range l.conns {
				if oldest == nil || use.isBefore(l.conns[oldest]) {
					oldest = c
				}
			}
			delete(l.conns, oldest)
		}
		if l.conns == nil {
			l.conns = map[net.Conn]connUse{}
		}
		l.conns[conn] = connUse{at: now}
	case http.StateActive:
		if use, ok := l.conns[conn]; ok && use.stage == opened {
			l.conns[conn] = connUse{asking, use.at}
		}
	case http.StateIdle:
		if _, ok := l.conns[conn]; ok {
			l.conns[conn] = connUse{answered, now}
		}
	case http.StateClosed:
		delete(l.conns, conn)
	}
	return oldest
}
