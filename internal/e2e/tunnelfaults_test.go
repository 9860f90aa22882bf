package e2e

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/tunnel"
)

// The tests in this file have a path each, and wait much: they run side by side.

// After this time a side has noticed that the other is silent: the keepalive's
// default, and what a busy machine adds.
const noticed = 30*time.Second + slack

const slack = 10 * time.Second

// reconnected is the agent's longest wait before its first new attempt, and
// what a busy machine adds.
const reconnected = 4*time.Second + slack

var targets = []string{echoTarget, sinkTarget, sourceTarget}

// pathHub is a hub at the near end of a path, with targets at the far one.
func pathHub(t *testing.T, s *tunnel.Server) (*bed.Path, *hub) {
	t.Helper()
	p := newPath(t)
	startTargets(t, p.Far)
	return p, newHub(t, s, listen(t, p.Near, pathAddress))
}

var pathAddress = net.JoinHostPort(bed.NearIP, tunnelPort)

func newPath(t *testing.T) *bed.Path {
	t.Helper()
	p, err := sharedBed(t).NewPath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// portOf returns the port that tells a session's flow from the others.
func portOf(t *testing.T, info tunnel.SessionInfo) string {
	t.Helper()
	_, port, err := net.SplitHostPort(info.Remote)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// The directions of a flow, by the agent's port.
const fromAgent, toAgent = "sport", "dport"

// breakFlow does to directions of a session's flow what verdict says.
func breakFlow(t *testing.T, p *bed.Path, info tunnel.SessionInfo, verdict string, directions ...string) {
	t.Helper()
	var rules []string
	for _, direction := range directions {
		rules = append(rules, "tcp "+direction+" "+portOf(t, info)+" "+verdict)
	}
	if err := p.Fault(t.Context(), rules...); err != nil {
		t.Fatal(err)
	}
}

// A load balancer's failover: the new one knows nothing of the flow, and either
// says so or does not; or it knows one direction. Both sides notice, and the
// agent comes back.
func TestTunnelHalfOpen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, verdict string
		directions    []string
		within        time.Duration
	}{
		// A probe meets the reset, and idle sessions are probed after 10 s.
		{"reset", "reject with tcp reset", []string{fromAgent, toAgent}, 10*time.Second + reconnected},
		{"silence", "drop", []string{fromAgent, toAgent}, 30*time.Second + reconnected},
		// The server's first probe still comes, and is the last sign of life; its
		// FIN at 30 s waits for an acknowledgement of what was sent before.
		{"the agent is not heard", "drop", []string{fromAgent}, 40*time.Second + reconnected},
		{"the server is not heard", "drop", []string{toAgent}, 30*time.Second + reconnected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, h := pathHub(t, &tunnel.Server{})
			startAgent(t, p.Far, agentInput{Invitation: h.invite(pathAddress), Allow: targets})
			info := h.session(20 * time.Second)
			stream, err := h.dial(t.Context(), echoTarget)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			if err := echo(stream, time.Now().Add(slack)); err != nil {
				t.Fatal(err)
			}
			breakFlow(t, p, info, tt.verdict, tt.directions...)
			began := time.Now()
			h.session(tt.within)
			back := time.Since(began)
			if err := h.dialEcho(t.Context(), slack); err != nil {
				t.Errorf("a dial on the new session: %v", err)
			}
			wantCut(t, stream, noticed)
			t.Logf("the agent was back after %v, the stream was cut after %v", back, time.Since(began))
		})
	}
}

// What was killed is started again, and all works as before.
func TestTunnelKillAgent(t *testing.T) {
	t.Parallel()
	p, h := pathHub(t, &tunnel.Server{})
	input := agentInput{Invitation: h.invite(pathAddress), Allow: targets, Dir: filepath.Join(t.TempDir(), "agent")}
	agent := startAgent(t, p.Far, input)
	first := h.session(20 * time.Second)
	stream, err := h.dial(t.Context(), sourceTarget)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := io.CopyN(io.Discard, stream, 1<<20); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	agent.Stop()
	if err := stream.SetReadDeadline(time.Now().Add(slack)); err != nil {
		t.Fatal(err)
	}
	// What was on its way may still come; then it is cut, and not complete.
	if _, err := io.Copy(io.Discard, stream); !isCut(err) {
		t.Errorf("a stream of an agent that was killed: got %v, want a reset", err)
	}
	t.Logf("the stream was cut after %v", time.Since(began))
	if err := next(t, h.disconnected, slack, "the session's end"); err == nil {
		t.Error("the session of an agent that was killed ended in order")
	}
	began = time.Now()
	startAgent(t, p.Far, input)
	second := h.session(20 * time.Second)
	if err := h.dialEcho(t.Context(), slack); err != nil {
		t.Error(err)
	}
	t.Logf("a dial works %v after the agent was started again", time.Since(began))
	if first.Agent != second.Agent {
		t.Errorf("the agent was %s and is %s, want it to keep its identity", first.Agent, second.Agent)
	}
}

const pathFront = "127.0.0.1:7000"

func TestTunnelKillServer(t *testing.T) {
	t.Parallel()
	p := newPath(t)
	startTargets(t, p.Far)
	authority := newAuthority(t)
	cert, key, err := authority.PEM()
	if err != nil {
		t.Fatal(err)
	}
	input := hubInput{Cert: cert, Key: key, Store: t.TempDir(), Address: pathAddress, Front: pathFront, Target: echoTarget}
	inviter := newHub(t, &tunnel.Server{Authority: authority, Store: tunnel.DirStore{Dir: input.Store}})
	server := startRole(t, p.Near, "hub", input)
	agent := startAgent(t, p.Far, agentInput{Invitation: inviter.invite(pathAddress), Allow: targets})
	frontEcho := func(ctx context.Context) error {
		conn, err := p.Near.DialContext(ctx, "tcp", pathFront)
		if err != nil {
			return err
		}
		defer conn.Close()
		return echo(conn, time.Now().Add(time.Second))
	}
	if err := bed.Poll(t.Context(), "the tunnel", frontEcho); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if err := agent.WaitFor(t.Context(), "disconnected"); err != nil {
		t.Fatal(err)
	}
	if err := agent.WaitFor(t.Context(), "connection refused"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	startRole(t, p.Near, "hub", input)
	if err := bed.Poll(t.Context(), "the tunnel to be back", frontEcho); err != nil {
		t.Fatal(err)
	}
	t.Logf("a dial works %v after the server was started again", time.Since(began))
	if n := strings.Count(agent.Stdout(), "enrolled"); n != 1 {
		t.Errorf("the agent has enrolled %d times, want once", n)
	}
}

// A link that is away for ten seconds ends nothing: sessions live for thirty.
func TestTunnelLinkDown(t *testing.T) {
	t.Parallel()
	p, h := pathHub(t, &tunnel.Server{})
	startAgent(t, p.Far, agentInput{Invitation: h.invite(pathAddress), Allow: targets})
	h.session(20 * time.Second)
	stream, err := h.dial(t.Context(), echoTarget)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if err := echo(stream, time.Now().Add(slack)); err != nil {
		t.Fatal(err)
	}
	if err := p.Router.RunIP(t.Context(), "link set host2 down"); err != nil {
		t.Fatal(err)
	}
	dialed := make(chan error, 1)
	go func() { dialed <- h.dialEcho(t.Context(), time.Minute) }()
	if err := echo(stream, time.Now().Add(10*time.Second)); !isTimeout(err) {
		t.Errorf("while the link is down: got %v, want a timeout", err)
	}
	if err := p.Router.RunIP(t.Context(), "link set host2 up"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := stream.SetDeadline(began.Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
		t.Errorf("what was sent while the link was down: %v", err)
	}
	t.Logf("it came back %v after the link", time.Since(began))
	if err := next(t, dialed, time.Minute, "the dial's end"); err != nil {
		t.Errorf("a dial while the link was down: %v", err)
	}
	t.Logf("a dial while it was down works %v after the link is back", time.Since(began))
	wantOneSession(t, h, 2)
}

// A load balancer that cuts what is idle for 5 s cuts no session that is probed
// more often, and one that is not it does.
func TestTunnelIdleLimit(t *testing.T) {
	t.Parallel()
	const idle = 5 * time.Second
	for _, tt := range []struct {
		name  string
		probe time.Duration
		cut   bool
	}{
		{"probed", 2 * time.Second, false},
		{"not probed", time.Minute, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			keep := tunnel.KeepAlive{ProbeAfter: tt.probe, DeadAfter: 2 * time.Minute}
			p, h := pathHub(t, &tunnel.Server{KeepAlive: keep})
			address, err := p.Balance(t.Context(), 443, "5s")
			if err != nil {
				t.Fatal(err)
			}
			startAgent(t, p.Far, agentInput{Invitation: h.invite(address), Allow: targets, KeepAlive: keep})
			h.session(20 * time.Second)
			stream, err := h.dial(t.Context(), echoTarget)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			if tt.cut {
				wantCut(t, stream, idle+slack)
				h.session(reconnected)
				return
			}
			if err := stream.SetReadDeadline(time.Now().Add(4 * idle)); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Read(make([]byte, 1)); !isTimeout(err) {
				t.Errorf("an idle stream: got %v, want a timeout", err)
			}
			if err := echo(stream, time.Now().Add(slack)); err != nil {
				t.Error(err)
			}
			wantOneSession(t, h, 1)
		})
	}
}
