//go:build unix

package carrier_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/carrier"
)

// drained returns carriers of which the agent's has read all there is, and
// nothing of it is left in TLS.
func drained(t *testing.T, a, b net.Conn) (agent, server *carrier.Conn) {
	t.Helper()
	agent, server = carriers(t, a, b)
	tell(t, server, "drained")
	readSome(t, agent, 100, "drained")
	return agent, server
}

func tell(t *testing.T, c *carrier.Conn, text string) {
	t.Helper()
	if _, err := (flushing{c}).Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// readSome reads once.
func readSome(t *testing.T, c *carrier.Conn, size int, want string) {
	t.Helper()
	p := make([]byte, size)
	if n, err := c.Read(p); string(p[:n]) != want || err != nil {
		t.Fatalf("got %q, %v, want %q", p[:n], err, want)
	}
}

// waitFor calls Wait, and then once the wait began. It returns whether it did.
func waitFor(c *carrier.Conn, then func()) (waited bool) {
	var wg sync.WaitGroup
	c.Wait(func() {
		waited = true
		wg.Go(then)
	})
	wg.Wait()
	return waited
}

// What ends a wait is what Read returns then, errors once and as they were.
func TestWait(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, agent, server *carrier.Conn)
		text string
		want error
	}{
		{"bytes", func(t *testing.T, _, server *carrier.Conn) { tell(t, server, "bytes") }, "bytes", nil},
		{"the end of TLS", func(_ *testing.T, _, server *carrier.Conn) { server.Close() }, "", io.EOF},
		{"an end without", func(_ *testing.T, _, server *carrier.Conn) { server.NetConn().Close() }, "", io.ErrUnexpectedEOF},
		{"a reset", func(_ *testing.T, _, server *carrier.Conn) {
			server.NetConn().(*net.TCPConn).SetLinger(0)
			server.NetConn().Close()
		}, "", syscall.ECONNRESET},
		{"Close", func(_ *testing.T, agent, _ *carrier.Conn) { agent.Close() }, "", net.ErrClosed},
		{"Close below", func(_ *testing.T, agent, _ *carrier.Conn) { agent.NetConn().Close() }, "", net.ErrClosed},
		{"a deadline", func(_ *testing.T, agent, _ *carrier.Conn) { agent.SetReadDeadline(time.Unix(1, 0)) }, "", os.ErrDeadlineExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := ends(t, tcp())
			agent, server := drained(t, a, b)
			if !waitFor(agent, func() { tt.end(t, agent, server) }) {
				t.Error("Wait returned at once")
			}
			if tt.want == nil && waitFor(agent, func() {}) {
				t.Error("Wait waited for more than there was")
			}
			p := make([]byte, 100)
			if n, err := agent.Read(p); string(p[:n]) != tt.text || !errors.Is(err, tt.want) {
				t.Errorf("got %q, %v, want %q, %v", p[:n], err, tt.text, tt.want)
			}
		})
	}
}

// Wait returns at once while there may be something to read or an error.
func TestWaitNot(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, agent, server *carrier.Conn)
		want    string
		later   bool // it is sent after the wait
	}{
		{"the rest of a record", func(t *testing.T, agent, server *carrier.Conn) {
			tell(t, server, "the rest")
			readSome(t, agent, 4, "the ")
		}, "rest", false},
		{"a record read to its end", func(t *testing.T, agent, server *carrier.Conn) {
			tell(t, server, "all")
			readSome(t, agent, 3, "all")
		}, "more", true},
		{"another record", func(t *testing.T, agent, server *carrier.Conn) {
			server.Write([]byte("one"))
			tell(t, server, "another")
			readSome(t, agent, 100, "one")
		}, "another", false},
		{"an error", func(t *testing.T, agent, server *carrier.Conn) {
			agent.SetReadDeadline(time.Unix(1, 0))
			if _, err := agent.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want a deadline", err)
			}
			agent.SetReadDeadline(time.Time{})
		}, "more", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := ends(t, tcp())
			agent, server := drained(t, a, b)
			tt.prepare(t, agent, server)
			if waitFor(agent, func() { agent.Close() }) {
				t.Fatal("it waited")
			}
			if tt.later {
				tell(t, server, tt.want)
			}
			readSome(t, agent, 100, tt.want)
		})
	}
}

// A deadline ends the wait, not the Read with another one.
func TestWaitAfterDeadline(t *testing.T) {
	a, b := ends(t, tcp())
	agent, server := drained(t, a, b)
	waitFor(agent, func() { agent.SetReadDeadline(time.Unix(1, 0)) })
	agent.SetReadDeadline(time.Time{})
	tell(t, server, "still there")
	readSome(t, agent, 100, "still there")
}

// Where there is no socket to look at, Wait leaves it to Read.
func TestWaitWithoutSocket(t *testing.T) {
	a, b := net.Pipe()
	agent, server := carriers(t, a, b)
	var wg sync.WaitGroup
	wg.Go(func() { tell(t, server, "drained") })
	readSome(t, agent, 100, "drained")
	wg.Wait()
	if waitFor(agent, func() { agent.Close() }) {
		t.Error("Wait waited")
	}
}
