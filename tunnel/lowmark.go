package tunnel

import (
	"net"
	"time"
)

const (
	// minLowMark and maxLowMark bound how much unsent data a kernel takes.
	minLowMark = 128 << 10
	maxLowMark = 4 << 20
	// lowMarkTime is what unsent data may take to send.
	lowMarkTime = 10 * time.Millisecond
	// lowMarkEvery is how many bytes are sent between two looks at the rate.
	lowMarkEvery = 4 << 20
)

// lowMark fits to its rate how much unsent data a TCP connection takes. What
// the kernel has, the session can no longer put other streams ahead of: on a
// slow link little is best. On a fast one little costs: the writer is woken
// for each piece.
type lowMark struct {
	conn  *net.TCPConn // nil: there is nothing to set
	mark  int          // as it is set; zero: minLowMark
	sent  int          // bytes since
	since time.Time    // zero at first: the first look finds a slow link
}

func newLowMark(conn net.Conn) lowMark {
	tc, _ := lowest(conn).(*net.TCPConn)
	return lowMark{conn: tc}
}

// wrote counts what was written.
func (l *lowMark) wrote(n int) {
	l.sent += n
	if l.conn == nil || l.sent < lowMarkEvery {
		return
	}
	now := time.Now()
	if mark := lowMarkFor(l.sent, now.Sub(l.since)); mark != l.mark {
		l.mark = mark
		setLowMark(l.conn, mark)
	}
	l.sent, l.since = 0, now
}

// lowMarkFor returns a power of two, at most what the rate sends in
// lowMarkTime.
func lowMarkFor(sent int, took time.Duration) int {
	most := float64(sent) * lowMarkTime.Seconds() / took.Seconds()
	mark := minLowMark
	for mark < maxLowMark && float64(2*mark) <= most {
		mark *= 2
	}
	return mark
}
