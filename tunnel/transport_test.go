package tunnel_test

import (
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel"
)

// transports are the ones to test, each with an address to listen at.
var transports = []struct {
	name, listen string
	transport    func() tunnel.Transport
}{
	{"tcp", "127.0.0.1:0", func() tunnel.Transport { return tunnel.TCP{} }},
	{"ws", "ws://127.0.0.1:0/tunnel", func() tunnel.Transport { return tunnel.WebSocket{} }},
	{"wss", "wss://127.0.0.1:0", func() tunnel.Transport {
		config := pki.ClientTLS()
		config.ServerName = ""
		config.Certificates = pki.ServerTLS().Certificates
		return tunnel.WebSocket{TLS: config}
	}},
}

// dialAddress is what an agent dials to reach a listener at listen.
func dialAddress(listen string, l net.Listener) string {
	return strings.Replace(listen, "127.0.0.1:0", l.Addr().String(), 1)
}

// ends returns the two ends of a connection of the transport.
func ends(t testing.TB, transport tunnel.Transport, listen string) (agent, server net.Conn) {
	t.Helper()
	ctx := testContext(t)
	l, err := transport.Listen(ctx, listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	})
	agent, err = transport.Dial(ctx, nil, dialAddress(listen, l))
	if err != nil {
		l.Close()
		t.Fatal(err)
	}
	wg.Wait()
	server = <-accepted
	t.Cleanup(func() { agent.Close(); server.Close() })
	return agent, server
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTransportFor(t *testing.T) {
	tests := []struct {
		address, host string
		want          tunnel.Transport
		err           string
	}{
		{"server.test:7443", "server.test", tunnel.TCP{}, ""},
		{"[2001:db8::1]:7443", "2001:db8::1", tunnel.TCP{}, ""},
		{"ws://server.test", "server.test", tunnel.WebSocket{}, ""},
		{"wss://user:pass@server.test:8443/a", "server.test", tunnel.WebSocket{}, ""},
		{"wss://[2001:db8::1]/", "2001:db8::1", tunnel.WebSocket{}, ""},
		{"server.test", "", nil, "missing port"},
		{"", "", nil, "missing port"},
		{"ann:hidden@server.test:7443", "", nil, "too many colons"},
		{"https://server.test", "server.test", nil, "neither ws nor wss"},
		{"wss:///path", "", nil, "no host"},
		{":7443", "", nil, "no host"},
		{"::1:7443", "", nil, "IPv6 stands in brackets"},
		{"[fe80::1]:7443", "fe80::1", nil, "no zone"},
		{"[fe80::1%eth0]:7443", "fe80::1%eth0", tunnel.TCP{}, ""},
		{"wss://[fe80::1]", "fe80::1", nil, "no zone"},
		{"wss://[fe80::1%25eth0]", "fe80::1%eth0", tunnel.WebSocket{}, ""},
		{"server.test:0", "server.test", nil, "number from 1 to 65535"},
		{"server.test:7443/hidden", "server.test", nil, "number from 1 to 65535"},
		{"wss://server.test:65536", "server.test", nil, "number from 1 to 65535"},
		{"a b:7443", "a b", nil, "neither a name nor an IP address"},
		{"ann:hidden@server.test", "ann", nil, "number from 1 to 65535"},
		{"wss://2001:db8::1:8443", "2001:db8::1", nil, "without brackets"},
		{"wss://server.test/#x", "server.test", nil, "fragment"},
		{"wss://user:hidden\n@server.test", "", nil, "not a URL"},
	}
	for _, tt := range tests {
		got, err := tunnel.TransportFor(tt.address)
		var e *tunnel.Error
		switch {
		case tt.err == "" && (err != nil || got == nil || reflect.TypeOf(got) != reflect.TypeOf(tt.want)):
			t.Errorf("%s: got %T, %v; want %T", tt.address, got, err, tt.want)
		case tt.err != "" && (!errors.As(err, &e) || e.Code != tunnel.CodeConfig || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: got %v, want a configuration error with %q", tt.address, err, tt.err)
		case err != nil && strings.Contains(err.Error(), "hidden"):
			t.Errorf("the error has the password: %v", err)
		}
		if got := tunnel.HostOf(tt.address); got != tt.host {
			t.Errorf("%s: got the host %q, want %q", tt.address, got, tt.host)
		}
	}
}

func TestListenErrors(t *testing.T) {
	ctx := testContext(t)
	taken := listen(t)
	defer taken.Close()
	for _, tt := range []struct {
		transport tunnel.Transport
		address   string
		want      string
	}{
		{tunnel.TCP{}, taken.Addr().String(), "in use"},
		{tunnel.WebSocket{}, taken.Addr().String(), "in use"},
		{tunnel.WebSocket{}, "wss://127.0.0.1:0", "WebSocket.TLS"},
		{tunnel.WebSocket{}, "http://127.0.0.1:0", "neither ws nor wss"},
	} {
		if _, err := tt.transport.Listen(ctx, tt.address); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%T, %s: got %v, want %q", tt.transport, tt.address, err, tt.want)
		}
	}
}
