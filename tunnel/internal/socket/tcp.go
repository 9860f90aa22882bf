package socket

import (
	"net"
	"time"
)

// TuneListener returns a listener that tunes what l accepts, as Tune does. A listener of
// TuneListener is returned as it is.
func TuneListener(l net.Listener) net.Listener {
	if tuned, ok := l.(tunedListener); ok {
		return tuned
	}
	return tunedListener{l}
}

type tunedListener struct{ net.Listener }

func (l tunedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		Tune(conn)
	}
	return conn, err
}

// Tune sets how much data that was not sent the kernel takes for the TCP connection at the
// bottom of conn, if there is one and the system has such an option. A carrier has an [UnsentLimit].
func Tune(conn net.Conn) {
	tc, ok := Innermost(conn).(*net.TCPConn)
	if !ok {
		return
	}
	setUnsent(tc, tunedUnsent)
}

const (
	// tunedUnsent is how much a kernel takes for a connection whose rate nobody looks at.
	tunedUnsent = 128 << 10
	// minUnsent and maxUnsent bound how much unsent data a kernel takes.
	minUnsent = 16 << 10
	maxUnsent = 4 << 20
	// unsentTime is what unsent data may take to send.
	unsentTime = 10 * time.Millisecond
	// firstLook and lastLook are how many bytes are sent before the first look at the rate, and between two
	// when the connection is no longer new: each takes twice as many as the one before.
	firstLook = 128 << 10
	lastLook  = 4 << 20
)

// UnsentLimit adapts how much unsent data the kernel takes for a TCP connection
// (TCP_NOTSENT_LOWAT) to the connection's rate. A session can no longer send
// another stream's data ahead of what the kernel has: on a slow link the limit
// should be small. On a fast link a small limit costs: the writer is woken once
// for each piece.
type UnsentLimit struct {
	conn  *net.TCPConn // nil: it has no such option
	limit int          // as it is set
	look  int          // bytes until the next look
	sent  int          // bytes since
	since time.Time    // zero at first: the first look finds a slow link
}

// NewUnsentLimit is for the TCP connection at the bottom of conn, if there is one. It begins as on a slow link.
func NewUnsentLimit(conn net.Conn) UnsentLimit {
	tc, _ := Innermost(conn).(*net.TCPConn)
	if tc != nil {
		setUnsent(tc, minUnsent)
	}
	return UnsentLimit{conn: tc, limit: minUnsent, look: firstLook}
}

// Wrote counts n bytes that were written.
func (u *UnsentLimit) Wrote(n int) {
	u.sent += n
	if u.conn == nil || u.sent < u.look {
		return
	}
	u.look = min(2*u.look, lastLook)
	now := time.Now()
	if limit := unsentLimitFor(u.sent, now.Sub(u.since)); limit != u.limit {
		u.limit = limit
		setUnsent(u.conn, limit)
	}
	u.sent, u.since = 0, now
}

// unsentLimitFor returns a power of two, at most what the rate sends in
// unsentTime.
func unsentLimitFor(sent int, took time.Duration) int {
	most := float64(sent) * unsentTime.Seconds() / took.Seconds()
	limit := minUnsent
	for limit < maxUnsent && float64(2*limit) <= most {
		limit *= 2
	}
	return limit
}
