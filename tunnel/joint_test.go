package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/session"
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
	l, err := tunnel.TCP{}.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// Each stream's end, its code included, comes out of a joint as it went in.
func TestJointCodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*mux.Stream)
		code uint32 // of the reset; or an end of file
		eof  bool
	}{
		{"reset", func(s *mux.Stream) { s.Reset(6) }, 6, false},
		{"the reader went away", func(s *mux.Stream) { s.Reset(0) }, 0, false},
		{"close", func(s *mux.Stream) { s.Close() }, 0, true},
		{"half-close", func(s *mux.Stream) { s.CloseWrite() }, 0, true},
	} {
		for _, fromAgent := range []bool{false, true} {
			name := tt.name + " by the caller"
			if fromAgent {
				name = tt.name + " by the agent"
			}
			t.Run(name, func(t *testing.T) {
				client, agent := joined(t, context.Background())
				if fromAgent {
					client, agent = agent, client
				}
				client.Write([]byte("abc"))
				buf := make([]byte, 3)
				if _, err := io.ReadFull(agent, buf); err != nil {
					t.Fatal(err)
				}
				tt.end(client)
				_, err := agent.Read(buf)
				var reset *mux.ResetError
				switch isReset := errors.As(err, &reset); {
				case tt.eof && err != io.EOF:
					t.Errorf("got %v, want the end", err)
				case !tt.eof && (!isReset || !reset.Remote || reset.Code != tt.code):
					t.Errorf("got %v, want a reset of code %d", err, tt.code)
				}
				agent.Close()
			})
		}
	}
}

// Who has sent all and reads no more has sent all: that the other side cannot
// write to it costs nothing of it.
func TestJointKeepsWhatWasSent(t *testing.T) {
	client, agent := joined(t, context.Background())
	const size = 400 << 10 // more than a window, less than two
	agent.Write(make([]byte, size))
	agent.Close()
	for range 10 {
		client.Write(make([]byte, 1<<10))
	}
	if n, err := io.Copy(io.Discard, struct{ io.Reader }{client}); n != size || err != nil {
		t.Errorf("got %d bytes, %v, want %d and the end", n, err, size)
	}
}

// When its context ends, both ends of a joint see a reset, and nothing is left.
func TestJointContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client, agent := joined(t, ctx)
	cancel()
	for _, s := range []*mux.Stream{client, agent} {
		if _, err := s.Read(make([]byte, 1)); resetCode(err) != 10 {
			t.Errorf("got %v, want a reset of code 10", err)
		}
	}
}

// joined are the far ends of two streams that a joint relays between.
func joined(t *testing.T, ctx context.Context) (client, agent *mux.Stream) {
	t.Helper()
	client, near := streams(t)
	agent, far := streams(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		session.Bridge(ctx, near, far)
	}()
	t.Cleanup(func() {
		client.Reset(0)
		agent.Reset(0)
		<-done
	})
	return client, agent
}

// streams are both ends of one stream.
func streams(t *testing.T) (a, b *mux.Stream) {
	t.Helper()
	x, y := net.Pipe()
	client, server := mux.Client(x, nil), mux.Server(y, nil)
	a, err := client.Open(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = server.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return a, b
}
