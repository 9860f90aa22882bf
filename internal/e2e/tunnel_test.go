package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/tunnel"
)

// cluster is what all agents of these tests are of.
const cluster = "e2e/prod"

// tunnelPort is where servers listen: the one that office proxies let pass.
const tunnelPort = "443"

// A hub is a tunnel's server that runs in the test, while its listeners, and so
// its connections, are in a namespace of the bed.
type hub struct {
	*tunnel.Server
	t            *testing.T
	connected    chan tunnel.SessionInfo
	disconnected chan error // nil: in order
}

// newHub adds what a test does not say to the server, which serves at the
// listeners until the test ends.
func newHub(t *testing.T, s *tunnel.Server, listeners ...net.Listener) *hub {
	t.Helper()
	if s.Authority == nil {
		s.Authority = newAuthority(t)
	}
	h := &hub{Server: s, t: t, connected: make(chan tunnel.SessionInfo, 100),
		disconnected: make(chan error, 100)}
	s.Hooks.Connected = func(info tunnel.SessionInfo) { h.connected <- info }
	s.Hooks.Disconnected = func(_ tunnel.SessionInfo, err error) { h.disconnected <- err }
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() {
			if err := s.Serve(context.Background(), l); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		serving.Wait()
	})
	return h
}

func newAuthority(t *testing.T) *tunnel.Authority {
	t.Helper()
	a, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// listen listens in a namespace until the test ends.
func listen(t *testing.T, ns *bed.Namespace, address string) net.Listener {
	t.Helper()
	l, err := ns.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// invite returns the text of an invitation to the servers.
func (h *hub) invite(servers ...string) string {
	h.t.Helper()
	inv, err := h.Invite(h.t.Context(), cluster, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	inv.Servers = servers
	return inv.Reveal()
}

// session waits for the next session.
func (h *hub) session(within time.Duration) tunnel.SessionInfo {
	h.t.Helper()
	return next(h.t, h.connected, within, "a session")
}

func next[T any](t testing.TB, c <-chan T, within time.Duration, what string) T {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("%v have passed without %s", within, what)
		panic("not reached")
	}
}

// dial dials through the cluster's agents.
func (h *hub) dial(ctx context.Context, address string) (net.Conn, error) {
	return h.Dialer(cluster).DialContext(ctx, "tcp", address)
}

// front relays what connects to an address of the namespace to a target behind
// the tunnel, until the test ends: the way of programs that dial by themselves.
func (h *hub) front(ns *bed.Namespace, address, target string) {
	h.t.Helper()
	l := listen(h.t, ns, address)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { serveFront(ctx, l, h.Dialer(cluster), target) })
	h.t.Cleanup(func() {
		cancel()
		l.Close()
		serving.Wait()
	})
}

// serveFront returns when the listener is closed and all relays have ended, at
// the latest with ctx.
func serveFront(ctx context.Context, l net.Listener, d *tunnel.Dialer, target string) {
	var relays sync.WaitGroup
	defer relays.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		relays.Go(func() {
			through, err := d.DialContext(ctx, "tcp", target)
			if err != nil {
				conn.Close()
				return
			}
			relay.Relay(ctx, conn, through)
		})
	}
}

// startAgent starts the agent's role; it is killed when the test ends. It keeps
// its credentials in a folder of the test's unless the input names one.
func startAgent(t *testing.T, ns *bed.Namespace, input agentInput) *bed.Running {
	t.Helper()
	if input.Dir == "" {
		input.Dir = filepath.Join(t.TempDir(), "agent")
	}
	return startRole(t, ns, "agent", input)
}

func startRole(t *testing.T, ns *bed.Namespace, role string, input any) *bed.Running {
	t.Helper()
	c, err := bed.RoleCommand(role, input)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ns.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Stop()
		if t.Failed() {
			t.Logf("role %s: %s\n%v", role, r.Stdout(), r.Wait())
		}
	})
	return r
}

// startTargets starts the targets' role, and returns when they listen.
func startTargets(t *testing.T, ns *bed.Namespace) {
	t.Helper()
	r := startRole(t, ns, "targets", nil)
	if err := r.WaitFor(t.Context(), "ready"); err != nil {
		t.Fatal(err)
	}
}

// echo sends a byte and wants it back before the deadline.
func echo(conn net.Conn, deadline time.Time) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	sent := [1]byte{'x'}
	if _, err := conn.Write(sent[:]); err != nil {
		return err
	}
	var got [1]byte
	if _, err := conn.Read(got[:]); err != nil {
		return err
	}
	if got != sent {
		return errors.New("another byte came back")
	}
	return nil
}

// dialEcho dials the echo target and has a byte sent back.
func (h *hub) dialEcho(ctx context.Context, within time.Duration) error {
	deadline := time.Now().Add(within)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := h.dial(ctx, echoTarget)
	if err != nil {
		return err
	}
	defer conn.Close()
	return echo(conn, deadline)
}

// isCut reports whether err says that a stream did not end in order. One whose
// peer fell silent is a timeout too, but no deadline's.
func isCut(err error) bool { return errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) }

// isTimeout reports whether err is of a deadline, and the stream lives.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) && !isCut(err) }
