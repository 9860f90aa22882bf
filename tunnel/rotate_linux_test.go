package tunnel_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/pki"
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
	for name, answer := range map[string]func(net.Conn){
		"the first is silent":             func(conn net.Conn) { io.Copy(io.Discard, conn) },
		"the first hangs up":              func(net.Conn) {},
		"the first reads, and hangs up":   func(conn net.Conn) { conn.Read(make([]byte, 100)) },
		"the first speaks HTTP":           func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\n\r\n") },
		"the first is another's TLS":      func(conn net.Conn) { tls.Server(conn, pki.ServerTLS()).Handshake() },
		"the first begins, and is silent": func(conn net.Conn) { io.WriteString(conn, "\x16\x03\x03\x00"); io.Copy(io.Discard, conn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, l, port := listenPair(t)
			strange := proxytest.Serve(first, func(_ context.Context, conn net.Conn) { answer(conn) })
			defer strange.Close()
			b := newBed(t, &tunnel.Server{})
			b.serveAlso(l)
			b.agent(quick(&tunnel.Agent{Servers: []string{"server.test:" + port}, Dial: twoAddresses.DialContext}))
		})
	}
	t.Run("the first proxy is silent", func(t *testing.T) {
		t.Parallel()
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
