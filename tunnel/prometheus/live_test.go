package prometheus_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

const greeting = "hello from the API server"

// world is a server with a gateway, and an agent, all with metrics.
type world struct {
	registry *prometheus.Registry
	server   *tunnel.Server
	agent    *tunnel.Agent
	door     string // of the gateway
	relayed  chan gateway.Ended
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newWorld returns when the agent of default/prod is connected.
func newWorld(t *testing.T) *world {
	t.Helper()
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{relayed: make(chan gateway.Ended, 1)}
	connected := make(chan struct{}, 1)
	w.server = &tunnel.Server{Authority: authority, Hooks: tunnel.Hooks{
		Connected: func(tunnel.SessionInfo) { connected <- struct{}{} },
	}}
	serverMetrics := &metrics.Server{Status: w.server.Status}
	w.server.Hooks = serverMetrics.Hooks(w.server.Hooks)

	door := &gateway.Gateway{
		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			return w.server.Dialer("default/prod").DialContext(ctx, "tcp", r.Address)
		},
		Authenticate: gateway.Anyone,
		Hooks:        gateway.Hooks{Ended: func(_ gateway.Request, e gateway.Ended) { w.relayed <- e }},
	}
	doorMetrics := &metrics.Gateway{Status: door.Status}
	door.Hooks = doorMetrics.Hooks(door.Hooks)

	tunnels, doors := listen(t), listen(t)
	w.door = doors.Addr().String()
	w.run(t, func(ctx context.Context) error { return w.server.Serve(ctx, tunnels) })
	w.run(t, func(ctx context.Context) error { return door.ServeConnect(ctx, doors) })
	agentMetrics := w.runAgent(t, tunnels.Addr().String())
	<-connected
	w.registry = registryOf(t, serverMetrics, doorMetrics, agentMetrics)
	return w
}

func (w *world) runAgent(t *testing.T, server string) *metrics.Agent {
	t.Helper()
	invitation, err := w.server.Invite(t.Context(), "default/prod", 0)
	if err != nil {
		t.Fatal(err)
	}
	w.agent = &tunnel.Agent{
		Servers:     []string{server},
		Credentials: &tunnel.MemoryCredentials{},
		Invitation:  func(context.Context) (tunnel.Invitation, error) { return invitation, nil },
		Targets:     tunnel.Targets{Aliases: map[string]string{"kubernetes.default.svc:443": target(t)}},
	}
	m := &metrics.Agent{Status: w.agent.Status}
	w.agent.Hooks = m.Hooks(w.agent.Hooks)
	w.run(t, w.agent.Run)
	return m
}

// run ends f with the test, in the reverse order.
func (w *world) run(t *testing.T, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v, want none at the end", err)
		}
	})
}

// target greets whoever comes.
func target(t *testing.T) string {
	s := proxytest.Serve(listen(t), func(_ context.Context, conn net.Conn) {
		io.WriteString(conn, greeting)
		conn.Close()
	})
	t.Cleanup(s.Close)
	return s.Addr()
}

// visit goes through the gateway and the tunnel, and returns when the gateway
// has counted the connection.
func (w *world) visit(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("tcp", w.door)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "CONNECT kubernetes.default.svc:443 HTTP/1.1\r\nHost: kubernetes.default.svc:443\r\n\r\n")
	answer, err := io.ReadAll(conn)
	conn.Close()
	if err != nil || len(answer) < len(greeting) || string(answer[len(answer)-len(greeting):]) != greeting {
		t.Fatalf("got %q, %v, want a greeting at the end", answer, err)
	}
	<-w.relayed
}

// What real programs do is what a scrape says.
func TestLive(t *testing.T) {
	w := newWorld(t)
	w.visit(t)
	if _, err := w.server.Dialer("default/prod").DialContext(t.Context(), "tcp", "10.0.0.1:22"); err == nil {
		t.Fatal("a target that nobody allows was dialed")
	}
	if _, err := w.server.Dialer("default/other").DialContext(t.Context(), "tcp", "10.0.0.1:22"); err == nil {
		t.Fatal("a cluster that nobody knows was dialed")
	}
	got := scrape(t, w.registry)
	expect(t, got, map[string]float64{
		"causeway_tunnel_ready":                                                    1,
		`causeway_tunnel_clusters{state="connected"}`:                              1,
		`causeway_tunnel_sessions{state="active"}`:                                 1,
		"causeway_tunnel_sessions_opened_total":                                    1,
		"causeway_tunnel_enrollments_total":                                        1,
		`causeway_tunnel_dials_total{code="ok"}`:                                   1,
		`causeway_tunnel_dials_total{code="denied"}`:                               1,
		`causeway_tunnel_dials_total{code="no_agent"}`:                             1,
		`causeway_tunnel_cluster_dials_total{cluster="default/prod"}`:              2,
		`causeway_tunnel_cluster_dial_failures_total{cluster="default/prod"}`:      1,
		`causeway_tunnel_cluster_sessions{cluster="default/prod"}`:                 1,
		`causeway_agent_sessions{state="active"}`:                                  1,
		`causeway_agent_dials_total{code="ok"}`:                                    1,
		`causeway_agent_dials_total{code="denied"}`:                                1,
		"causeway_gateway_connections_total":                                       1,
		`causeway_gateway_connection_duration_seconds_count{door="connect"}`:       1,
		`causeway_gateway_dial_duration_seconds_count{door="connect",result="ok"}`: 1,
	})
	if in := got["causeway_tunnel_received_bytes_total"]; in < float64(len(greeting)) {
		t.Errorf("got %v bytes from the agent, want at least the greeting's", in)
	}
	promtool(t, exposition(t, w.registry), "check", "metrics")
	promtool(t, exposition(t, registryOf(t, everything()...)), "check", "metrics")
}

// exposition is what a Prometheus is sent.
func exposition(t *testing.T, registry prometheus.Gatherer) []byte {
	t.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("got status %d: %s", rec.Code, rec.Body)
	}
	return rec.Body.Bytes()
}
