package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel"
)

// serveWSS serves the hub's WebSocket carriers at the listener, as a load
// balancer with TLS of its own would, until the test ends.
func (h *hub) serveWSS(l net.Listener) (ca *pki.CA) {
	h.t.Helper()
	ca = pki.NewCA("web")
	host, _, _ := net.SplitHostPort(l.Addr().String())
	outer := &tls.Config{Certificates: []tls.Certificate{ca.Server(host)}}
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { served <- h.Serve(ctx, tunnel.ListenWebSocket(l, outer)) }()
	h.t.Cleanup(func() {
		stop()
		<-served
	})
	return ca
}

// The agent enrols through the office proxy, whose restart ends the carrier and
// what is on it, and comes back by itself.
func TestTunnelThroughSquid(t *testing.T) {
	b := sharedBed(t)
	for _, tt := range []struct{ name, address, connect string }{
		{"tcp", net.JoinHostPort(bed.HubIP, tunnelPort), "CONNECT 203.0.113.2:443 user=causeway"},
		{"wss", "wss://" + bed.HubWebIP + "/agents", "CONNECT 203.0.113.3:443 user=causeway"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t, &tunnel.Server{}, listen(t, b.Network.Hub, net.JoinHostPort(bed.HubIP, tunnelPort)))
			ca := h.serveWSS(listen(t, b.Network.Hub, net.JoinHostPort(bed.HubWebIP, tunnelPort)))
			input := agentInput{
				Invitation: h.invite(tt.address),
				Proxy:      []hop{{URL: b.Office.URL().String()}},
				Aliases:    map[string]string{apiTarget: b.Kube.Address()},

				FirstBackoff: 500 * time.Millisecond,
			}
			if strings.HasPrefix(tt.address, "wss:") {
				input.WebSocketCA = ca.CertPEM()
			}
			agent := startAgent(t, b.Network.API, input)
			h.session(20 * time.Second)
			if err := agent.WaitFor(t.Context(), "enrolled as "+cluster); err != nil {
				t.Fatal(err)
			}
			stream, err := h.dial(t.Context(), apiTarget)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			began := time.Now()
			b.Office.Stop()
			wantCut(t, stream, 10*time.Second)
			stopped := time.Now()
			if err := next(t, h.disconnected, 10*time.Second, "the session's end"); err == nil {
				t.Error("the session ended in order")
			}
			if err := agent.WaitFor(t.Context(), "connection refused"); err != nil {
				t.Fatal(err)
			}
			if err := b.Office.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("squid was away for %v", time.Since(stopped))
			restarted := time.Now()
			h.session(time.Minute)
			conn, err := h.dial(t.Context(), apiTarget)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			t.Logf("the stream was cut %v after squid was told to end; a dial works %v after it is back", stopped.Sub(began), time.Since(restarted))
			wantLogged(t, b, tt.connect)
		})
	}
}

// wantCut wants a stream to which nothing is sent to end in an error that is no
// end of file.
func wantCut(t *testing.T, stream net.Conn, within time.Duration) {
	t.Helper()
	if err := stream.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	n, err := stream.Read(make([]byte, 1))
	if n != 0 || !isCut(err) {
		t.Errorf("a stream on a session that was cut: got %d bytes and %v, want a reset", n, err)
	}
}

// wantLogged wants the office proxy to have let the connections for enrolment
// and for the session pass.
func wantLogged(t *testing.T, b *bed.Bed, connect string) {
	t.Helper()
	want := fmt.Sprintf("client=%s status=200 %s", bed.APIIP, connect)
	err := bed.Poll(t.Context(), "squid to log "+want, func(context.Context) error {
		lines, err := b.Office.Log()
		if err != nil {
			return bed.Stop(err)
		}
		if !slices.Contains(lines, want) {
			return fmt.Errorf("its log has %q", lines)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What the office proxy refuses the agent tells with the proxy's status, and
// does not go another way.
func TestTunnelRefusedBySquid(t *testing.T) {
	b := sharedBed(t)
	wrong := b.Office.URL()
	wrong.User = url.UserPassword(bed.ProxyUser, "wrong")
	for _, tt := range []struct {
		name, port string
		proxy      *url.URL
		status     int
	}{
		{"wrong password", tunnelPort, wrong, http.StatusProxyAuthRequired},
		{"another port", "8443", b.Office.URL(), http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address := net.JoinHostPort(bed.HubIP, tt.port)
			h := newHub(t, &tunnel.Server{}, listen(t, b.Network.Hub, address))
			agent := startAgent(t, b.Network.API, agentInput{Invitation: h.invite(address), Proxy: []hop{{URL: tt.proxy.String()}}})
			if err := agent.WaitFor(t.Context(), fmt.Sprintf("refused with status %d\n", tt.status)); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(agent.Stdout(), "connected") {
				t.Errorf("the agent says %q", agent.Stdout())
			}
		})
	}
}
