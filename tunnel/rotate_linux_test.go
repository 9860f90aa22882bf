package tunnel_test

import (
	"net"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// twoAddresses is a dialer that knows a server and a proxy by two addresses each.
var twoAddresses = dialer.Direct{Dialer: &net.Dialer{Resolver: dnstest.Hosts{
	"server.test.": {"127.0.0.2", "127.0.0.3"}, "proxy.test.": {"127.0.0.2", "127.0.0.3"},
}.Resolver()}}

// listenPair listens at one port of two addresses.
func listenPair(t *testing.T) (first, second net.Listener, port string) {
	t.Helper()
	first, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(first.Addr().String())
	if second, err = net.Listen("tcp", "127.0.0.3:"+port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	return first, second, port
}

// TestAgentTriesEachAddress: of a name's addresses the first may accept and be silent, or lead
// to a replica that the agent has already; be it the server's name or the proxy's.
func TestAgentTriesEachAddress(t *testing.T) {
	quick := func(a *tunnel.Agent) *tunnel.Agent {
		a.HandshakeTimeout, a.FirstBackoff, a.MaxBackoff = time.Second, time.Millisecond, time.Millisecond
		return a
	}
	t.Run("the first is silent", func(t *testing.T) {
		_, l, port := listenPair(t)
		b := newBed(t, &tunnel.Server{})
		b.serveAlso(l)
		b.agent(quick(&tunnel.Agent{Servers: []string{"server.test:" + port}, Dial: twoAddresses.DialContext}))
	})
	t.Run("the first proxy is silent", func(t *testing.T) {
		_, l, port := listenPair(t)
		proxy := proxytest.Serve(l, (&proxytest.HTTP{}).Handle)
		defer proxy.Close()
		b := newBed(t, &tunnel.Server{})
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b.serveAlso(server)
		through := &dialer.HTTPConnect{Addr: "proxy.test:" + port, Forward: twoAddresses}
		b.agent(quick(&tunnel.Agent{Servers: []string{server.Addr().String()}, Dial: through.DialContext}))
	})
}
