package tunnel_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// hop is two replicas over TCP, one of which has the agent, and a target.
type hop struct {
	t          testing.TB
	near, far  *bed // far has the agent
	target     *net.TCPListener
	viaFar     string // the address of far
	membership *members
}

func newHop(t testing.TB) *hop {
	t.Helper()
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan string, 10)
	h := &hop{t: t, membership: &members{}}
	far := &tunnel.Server{Name: "far", Authority: authority}
	near := &tunnel.Server{Name: "near", Authority: authority, Peers: h.membership, Hooks: tunnel.Hooks{PeerConnected: func(name string) { up <- name }}}
	h.far, h.viaFar = newTCPBed(t, far)
	h.near, _ = newTCPBed(t, near)
	h.membership.set(h.viaFar)
	if got := <-up; got != "far" {
		t.Fatalf("got the peer %q, want far", got)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	h.target = l.(*net.TCPListener)
	h.far.agent(&tunnel.Agent{Servers: []string{h.viaFar}, Targets: tunnel.Targets{Allow: []string{l.Addr().String()}}})
	return h
}

func newTCPBed(t testing.TB, s *tunnel.Server) (*bed, string) {
	t.Helper()
	b := newBed(t, s)
	l := listen(t)
	b.serveAlso(l)
	return b, l.Addr().String()
}

// pair is a connection and its end at the target.
func (h *hop) pair(b *bed) (conn, target net.Conn) {
	h.t.Helper()
	conn, err := b.dial(h.target.Addr().String())
	if err != nil {
		h.t.Fatal(err)
	}
	if target, err = h.target.Accept(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		conn.Close()
		target.Close()
	})
	return conn, target
}

// A forwarded connection is a net.Conn as one without a hop is.
func TestForwardedConn(t *testing.T) {
	h := newHop(t)
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		if c1, err = h.near.dial(h.target.Addr().String()); err != nil {
			return nil, nil, nil, err
		}
		if c2, err = h.target.Accept(); err != nil {
			return nil, nil, nil, err
		}
		return c1, c2, func() {
			c1.Close()
			c2.Close()
		}, nil
	})
}

// How a connection ends passes over the hop as it does without: what each end
// sees is the same.
func TestForwardedEnds(t *testing.T) {
	h := newHop(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 40<<10) // more than a window
	for _, b := range []struct {
		name string
		bed  *bed
	}{{"local", h.far}, {"forwarded", h.near}} {
		t.Run(b.name, func(t *testing.T) {
			t.Run("half-close", func(t *testing.T) {
				conn, target := h.pair(b.bed)
				go func() {
					conn.Write(data)
					conn.(*mux.Stream).CloseWrite()
				}()
				if got, err := io.ReadAll(target); !bytes.Equal(got, data) || err != nil {
					t.Errorf("the target got %d bytes, %v, want %d and the end", len(got), err, len(data))
				}
				go func() {
					target.Write(data)
					target.Close()
				}()
				if got, err := io.ReadAll(conn); !bytes.Equal(got, data) || err != nil {
					t.Errorf("got %d bytes, %v, want %d and the end", len(got), err, len(data))
				}
			})
			t.Run("close after a write", func(t *testing.T) {
				conn, target := h.pair(b.bed)
				conn.Write(data[:200<<10])
				conn.Close()
				if got, err := io.ReadAll(target); len(got) != 200<<10 || err != nil {
					t.Errorf("the target got %d bytes, %v, want all and the end", len(got), err)
				}
			})
			t.Run("the target resets", func(t *testing.T) {
				conn, target := h.pair(b.bed)
				target.(*net.TCPConn).SetLinger(0)
				target.Close()
				_, err := conn.Read(make([]byte, 1))
				if !errors.Is(err, syscall.ECONNRESET) || resetCode(err) != 10 {
					t.Errorf("got %v, want a reset of code 10", err)
				}
			})
			t.Run("the caller resets", func(t *testing.T) {
				conn, target := h.pair(b.bed)
				conn.(*mux.Stream).Reset(10)
				if n, err := target.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the target got %d, %v, want a reset", n, err)
				}
			})
		})
	}
}
