package tunnel_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// namesOf is a dialer for which each name has these addresses.
func namesOf(addrs ...string) dialer.Direct {
	answer := func(conn net.Conn) {
		defer conn.Close()
		var m dnsmessage.Message
		size := make([]byte, 2)
		io.ReadFull(conn, size)
		text := make([]byte, binary.BigEndian.Uint16(size))
		if io.ReadFull(conn, text); m.Unpack(text) != nil {
			return
		}
		m.Response = true
		for _, addr := range addrs {
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()},
				})
			}
		}
		text, _ = m.Pack()
		conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
	return dialer.Direct{Dialer: &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go answer(far)
		return near, nil
	}}}}
}

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
		b.agent(quick(&tunnel.Agent{Servers: []string{"server.test:" + port}, Dial: namesOf("127.0.0.2", "127.0.0.3").DialContext}))
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
		through := &dialer.HTTPConnect{Addr: "proxy.test:" + port, Forward: namesOf("127.0.0.2", "127.0.0.3")}
		b.agent(quick(&tunnel.Agent{Servers: []string{server.Addr().String()}, Dial: through.DialContext}))
	})
}
