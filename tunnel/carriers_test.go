package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// The life of an agent over each kind of carrier.
func TestCarrierKinds(t *testing.T) {
	for _, kind := range carrierKinds {
		t.Run(kind.name, func(t *testing.T) {
			gone := make(chan error, 10)
			left := make(chan error, 10)
			b, address := kind.bed(t, &tunnel.Server{Hooks: tunnel.Hooks{
				Disconnected: func(_ tunnel.SessionInfo, err error) { gone <- err },
			}})
			a := b.agent(&tunnel.Agent{Servers: []string{address}, FirstBackoff: time.Millisecond, Hooks: tunnel.AgentHooks{
				Disconnected: func(_ string, err error) { left <- err },
			}})
			b.echo().Close()
			whole, err := b.dial("x:13")
			if err != nil {
				t.Fatal(err)
			}
			stopped := make(chan struct{})
			go func() { // while the response is under way
				a.stop()
				close(stopped)
			}()
			n, err := io.Copy(io.Discard, whole)
			if n != 1<<20 || err != nil {
				t.Errorf("got %d bytes, %v, want %d", n, err, 1<<20)
			}
			whole.Close()
			<-stopped
			if err := <-gone; err != nil {
				t.Errorf("the server saw %v, want an end in order", err)
			}
			if err := <-left; err != nil {
				t.Errorf("the agent saw %v, want an end in order", err)
			}
			if _, err := b.dial("echo:7"); codeOf(err) != tunnel.CodeNoAgent {
				t.Errorf("got %v, want no agent", err)
			}
		})
	}
}

// A carrier that dies in the middle of a response: the client never takes what
// it has for all of it.
func TestCutResponses(t *testing.T) {
	rounds := 250
	if testing.Short() {
		rounds = 25
	}
	for _, kind := range carrierKinds {
		t.Run(kind.name, func(t *testing.T) {
			w := &cutter{}
			b, address := kind.bed(t, &tunnel.Server{})
			up := make(chan struct{}, 10000)
			b.start(&tunnel.Agent{Servers: []string{address}, FirstBackoff: time.Microsecond, MaxBackoff: time.Microsecond,
				Dial: w.around(address, b.w), Targets: endless(), Hooks: tunnel.AgentHooks{
					Connected: func(string, tunnel.Identity) { up <- struct{}{} },
				}})
			cut := 0
			for round := range rounds {
				conn := b.dialUntil("x:19")
				// Some are cut at once, some in the middle of something.
				if _, err := io.CopyN(io.Discard, conn, int64(round%20)*4000); err != nil {
					t.Fatal(err)
				}
				w.cut()
				conn.SetReadDeadline(time.Now().Add(20 * time.Second))
				_, err := io.Copy(io.Discard, conn)
				if err == nil {
					t.Fatalf("round %d: got the end of the response, want an error", round)
				}
				if errors.Is(err, syscall.ECONNRESET) {
					cut++
				}
				conn.Close()
			}
			if cut != rounds {
				t.Errorf("got %d resets, want %d", cut, rounds)
			}
		})
	}
}

// endless is a target that sends for ever, at port 19.
func endless() tunnel.Targets {
	n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			b := make([]byte, 10000)
			for {
				if _, err := far.Write(b); err != nil {
					return
				}
			}
		}()
		return near, nil
	}}
	return *targetsThrough(n, tunnel.Targets{Allow: []string{"*:19"}})
}

// dialUntil dials again while no agent is there.
func (b *bed) dialUntil(target string) net.Conn {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := b.dial(target)
		switch {
		case err == nil:
			return conn
		case time.Now().After(deadline), codeOf(err) != tunnel.CodeNoAgent && codeOf(err) != tunnel.CodeLost:
			b.t.Fatal(err)
		}
		select {
		case <-b.up:
		case <-time.After(time.Millisecond):
		}
	}
}

// cutter dials connections that can be cut.
type cutter struct {
	dial  tunnel.DialFunc
	conns chan net.Conn
}

func (c *cutter) around(address string, w *wires) tunnel.DialFunc {
	c.conns, c.dial = make(chan net.Conn, 10000), new(net.Dialer).DialContext
	if address == wireAddress {
		c.dial = w.Dial
	}
	return c.dialContext
}

func (c *cutter) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.conns <- conn
	return conn, nil
}

// cut closes all connections so far, every other time by a reset.
func (c *cutter) cut() {
	for {
		select {
		case conn := <-c.conns:
			if tc, ok := conn.(*net.TCPConn); ok && len(c.conns)%2 == 0 {
				tc.SetLinger(0)
			}
			conn.Close()
		default:
			return
		}
	}
}
