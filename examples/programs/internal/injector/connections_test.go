package injector

import (
	"net"
	"net/http"
	"testing"
	"time"
)

type testConn struct{ net.Conn }

// A connection without a request goes first, then one that was never answered, the oldest
// of them; then the one whose last answer is the oldest.
func TestConnLimit(t *testing.T) {
	l := &connLimit{max: 3}
	var now time.Time
	do := func(conn net.Conn, state http.ConnState) net.Conn {
		now = now.Add(time.Second)
		return l.note(conn, state, now)
	}
	var c []net.Conn
	for range 11 {
		c = append(c, &testConn{})
	}
	for n, step := range []struct {
		conn  int
		state http.ConnState
		want  int // -1 for none
	}{
		{0, http.StateNew, -1}, {0, http.StateActive, -1}, {0, http.StateIdle, -1},
		{1, http.StateNew, -1}, {2, http.StateNew, -1},
		{3, http.StateNew, 1}, {4, http.StateNew, 2}, // the answered one stays
		{1, http.StateClosed, -1}, {2, http.StateIdle, -1}, // told late
		{4, http.StateIdle, -1}, {3, http.StateIdle, -1}, {0, http.StateIdle, -1},
		{5, http.StateNew, 4}, {6, http.StateNew, 5}, {6, http.StateClosed, -1}, {7, http.StateNew, -1},
		{7, http.StateActive, -1}, {3, http.StateClosed, -1}, {8, http.StateNew, -1}, {9, http.StateNew, 8}, // what asks stays
		{9, http.StateActive, -1}, {10, http.StateNew, 7},
	} {
		got := -1
		if conn := do(c[step.conn], step.state); conn != nil {
			for got = range c {
				if c[got] == conn {
					break
				}
			}
		}
		if got != step.want {
			t.Errorf("step %d: got connection %d closed, want %d", n, got, step.want)
		}
	}
}
