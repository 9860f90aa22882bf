package tunnel_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCheckAddress(t *testing.T) {
	tests := []struct {
		address, host string
		err           string
	}{
		{"server.test:7443", "server.test", ""},
		{"[2001:db8::1]:7443", "2001:db8::1", ""},
		{"ws://server.test", "server.test", ""},
		{"wss://user:pass@server.test:8443/a", "server.test", ""},
		{"wss://[2001:db8::1]/", "2001:db8::1", ""},
		{"server.test", "", "missing port"},
		{"", "", "missing port"},
		{"ann:hidden@server.test:7443", "", "too many colons"},
		{"https://server.test", "server.test", "neither ws nor wss"},
		{"wss:///path", "", "no host"},
		{":7443", "", "no host"},
		{"::1:7443", "", "IPv6 stands in brackets"},
		{"[fe80::1]:7443", "fe80::1", "no zone"},
		{"[fe80::1%eth0]:7443", "fe80::1%eth0", ""},
		{"wss://[fe80::1]", "fe80::1", "no zone"},
		{"wss://[fe80::1%25eth0]", "fe80::1%eth0", ""},
		{"server.test:0", "server.test", "number from 1 to 65535"},
		{"server.test:7443/hidden", "server.test", "number from 1 to 65535"},
		{"wss://server.test:65536", "server.test", "number from 1 to 65535"},
		{"a b:7443", "a b", "neither a name nor an IP address"},
		{"ann:hidden@server.test", "ann", "number from 1 to 65535"},
		{"wss://2001:db8::1:8443", "2001:db8::1", "without brackets"},
		{"wss://server.test/#x", "server.test", "fragment"},
		{"wss://user:hidden\n@server.test", "", "not a URL"},
	}
	for _, tt := range tests {
		err := tunnel.CheckAddress(tt.address)
		var e *tunnel.Error
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("%s: got %v", tt.address, err)
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
