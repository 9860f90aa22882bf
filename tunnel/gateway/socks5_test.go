package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

func socksReply(code byte) string {
	return string([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
}

// TestSOCKS5Says is the door byte by byte: what a client says, what it is
// answered, what is dialed and what Hooks see.
func TestSOCKS5Says(t *testing.T) {
	const (
		bare  = "\x05\x01\x00"
		login = "\x05\x02\x00\x02"
		ann   = "\x01\x03ann\x0d" + secret
		ask   = "\x05\x01\x00\x03\x03a.b\x01\xbb"
	)
	password := func(g *gateway.Gateway) { g.Authenticate = authenticate }
	tests := []struct {
		name, say string
		set       func(*gateway.Gateway)
		dial      error
		want      string
		address   string // that is dialed
		phase     gateway.Phase
		text      string
	}{
		{name: "name", say: bare + ask, want: "\x05\x00" + socksReply(0), address: "a.b:443"},
		{name: "IPv4", say: bare + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x16", want: "\x05\x00" + socksReply(0), address: "10.0.0.1:22"},
		{name: "IPv6", say: bare + "\x05\x01\x00\x04" + string(netip.MustParseAddr("2001:db8::1").AsSlice()) + "\x00\x16", want: "\x05\x00" + socksReply(0), address: "[2001:db8::1]:22"},
		{name: "mapped IPv4", say: bare + "\x05\x01\x00\x04" + string(netip.MustParseAddr("::ffff:10.0.0.1").AsSlice()) + "\x00\x16", want: "\x05\x00" + socksReply(0), address: "10.0.0.1:22"},
		{name: "password", say: login + ann + ask, set: password, want: "\x05\x02\x01\x00" + socksReply(0), address: "a.b:443"},
		{name: "password that nobody wants", say: login + ann + ask, want: "\x05\x02\x01\x00" + socksReply(0), address: "a.b:443"},
		{name: "wrong password", say: login + "\x01\x03ann\x01x" + ask, set: password, want: "\x05\x02\x01\x01", phase: gateway.PhaseAuthenticate, text: "credentials"},
		{name: "no password", say: bare + ask, set: password, want: "\x05\xff", phase: gateway.PhaseAuthenticate, text: "credentials"},
		{name: "nobody is let in", say: bare + ask, set: func(g *gateway.Gateway) { g.Authenticate = nil }, want: "\x05\xff", phase: gateway.PhaseAuthenticate, text: "Authenticate"},
		{name: "no method", say: "\x05\x01\x01", want: "\x05\xff", phase: gateway.PhaseHandshake, text: "offers neither"},
		{name: "login of another version", say: login + "\x02\x03ann", want: "\x05\x02\x01\x01", phase: gateway.PhaseHandshake, text: "malformed"},
		{name: "BIND", say: bare + "\x05\x02\x00\x01\x0a\x00\x00\x01\x00\x16", want: "\x05\x00" + socksReply(7), phase: gateway.PhaseHandshake, text: "CONNECT"},
		{name: "UDP", say: bare + "\x05\x03\x00\x01\x0a\x00\x00\x01\x00\x16", want: "\x05\x00" + socksReply(7), phase: gateway.PhaseHandshake, text: "CONNECT"},
		{name: "address type", say: bare + "\x05\x01\x00\x02", want: "\x05\x00" + socksReply(8), phase: gateway.PhaseHandshake, text: "address type"},
		{name: "empty name", say: bare + "\x05\x01\x00\x03\x00\x01\xbb", want: "\x05\x00" + socksReply(1), phase: gateway.PhaseHandshake, text: "no name"},
		{name: "name with a space", say: bare + "\x05\x01\x00\x03\x03a b\x01\xbb", want: "\x05\x00" + socksReply(1), phase: gateway.PhaseHandshake, text: "no name"},
		{name: "port 0", say: bare + "\x05\x01\x00\x03\x03a.b\x00\x00", want: "\x05\x00" + socksReply(1), phase: gateway.PhaseHandshake, text: "no name"},
		{name: "request of another version", say: bare + "\x04\x01\x00\x03", want: "\x05\x00" + socksReply(1), phase: gateway.PhaseHandshake, text: "not one of SOCKS5"},
		{name: "SOCKS4", say: "\x04\x01\x01\xbb\x0a\x00\x00\x01\x00", want: "\x00\x5b\x00\x00\x00\x00\x00\x00", phase: gateway.PhaseHandshake, text: "SOCKS4"},
		{name: "HTTP", say: "GET / HTTP/1.1\r\n\r\n", want: "HTTP/1.1 400 Bad Request: this is a SOCKS5 proxy\r\n", phase: gateway.PhaseHandshake, text: "HTTP"},
		{name: "TLS", say: "\x16\x03\x01\x00\x05", want: "\x15\x03\x03\x00\x02\x02\x0a", phase: gateway.PhaseHandshake, text: "TLS"},
		{name: "something", say: "\x00", want: "", phase: gateway.PhaseHandshake, text: "does not speak"},
		{name: "half of it", say: bare + "\x05\x01", set: func(g *gateway.Gateway) { g.HandshakeTimeout = 30 * time.Millisecond }, want: "\x05\x00", phase: gateway.PhaseHandshake, text: "timeout"},
		{name: "forbidden", say: bare + ask, dial: syscall.EACCES, want: "\x05\x00" + socksReply(2), address: "a.b:443", phase: gateway.PhaseDial, text: "permission"},
		{name: "network", say: bare + ask, dial: syscall.ENETUNREACH, want: "\x05\x00" + socksReply(3), address: "a.b:443", phase: gateway.PhaseDial, text: "unreachable"},
		{name: "no agent", say: bare + ask, dial: noAgent{}, want: "\x05\x00" + socksReply(3), address: "a.b:443", phase: gateway.PhaseDial, text: "no agent"},
		{name: "host", say: bare + ask, dial: syscall.EHOSTUNREACH, want: "\x05\x00" + socksReply(4), address: "a.b:443", phase: gateway.PhaseDial, text: "route"},
		{name: "no such name", say: bare + ask, dial: &net.DNSError{Err: "no such host", IsNotFound: true}, want: "\x05\x00" + socksReply(4), address: "a.b:443", phase: gateway.PhaseDial, text: "no such host"},
		{name: "refused", say: bare + ask, dial: syscall.ECONNREFUSED, want: "\x05\x00" + socksReply(5), address: "a.b:443", phase: gateway.PhaseDial, text: "refused"},
		{name: "late", say: bare + ask, dial: os.ErrDeadlineExceeded, want: "\x05\x00" + socksReply(6), address: "a.b:443", phase: gateway.PhaseDial, text: "timeout"},
		{name: "failed", say: bare + ask, dial: errors.New("whatever"), want: "\x05\x00" + socksReply(1), address: "a.b:443", phase: gateway.PhaseDial, text: "whatever"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, seen := &gateway.Gateway{Authenticate: gateway.Anyone}, &failures{}
			if tt.set != nil {
				tt.set(g)
			}
			address := ""
			g.Hooks.Failed = seen.hook
			g.Dial = func(_ context.Context, r gateway.Request) (net.Conn, error) {
				address = r.Address
				near, far := net.Pipe()
				far.Close()
				return near, tt.dial
			}
			addr, _ := open(t, g, g.ServeSOCKS5)
			conn := call(t, addr)
			go io.WriteString(conn, tt.say)
			got, _ := io.ReadAll(conn) // a target that ends at once may be a reset
			if !strings.HasPrefix(string(got), tt.want) || tt.want == "" && len(got) > 0 {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			conn.Close()
			g.Close()
			if address != tt.address {
				t.Errorf("dialed %q, want %q", address, tt.address)
			}
			if tt.phase == "" {
				return
			}
			if e := seen.only(t, g); e.Phase != tt.phase || e.Door != gateway.DoorSOCKS5 || !strings.Contains(e.Error(), tt.text) || strings.Contains(e.Error(), secret) {
				t.Errorf("got %v, want phase %s and %q", e, tt.phase, tt.text)
			}
		})
	}
}

// scripted is a client that says data and then ends, and keeps what it is told.
type scripted struct {
	net.Conn
	say  io.Reader
	told bytes.Buffer
}

func (c *scripted) Read(p []byte) (int, error)       { return c.say.Read(p) }
func (c *scripted) Write(p []byte) (int, error)      { return c.told.Write(p) }
func (c *scripted) Close() error                     { return nil }
func (c *scripted) CloseWrite() error                { return nil }
func (c *scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *scripted) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *scripted) SetDeadline(time.Time) error      { return nil }
func (c *scripted) SetReadDeadline(time.Time) error  { return nil }
func (c *scripted) SetWriteDeadline(time.Time) error { return nil }

// Whatever a client says, it reaches nothing but a host and a port, and only
// once it is let in.
func FuzzSOCKS5Server(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		in := false
		g := &gateway.Gateway{
			Authenticate: func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
				if len(c.User) > 255 || len(c.Password) > 255 {
					t.Errorf("got credentials of %d and %d bytes", len(c.User), len(c.Password))
				}
				in = c.User != "eve"
				if !in {
					return gateway.Identity{}, gateway.ErrCredentials
				}
				return gateway.Identity{}, nil
			},
			Dial: func(_ context.Context, r gateway.Request) (net.Conn, error) {
				host, port, err := net.SplitHostPort(r.Address)
				if !in || err != nil || host == "" || port == "0" || strings.ContainsAny(host, " \r\n\x00/@") {
					t.Errorf("dialed %q, let in: %t", r.Address, in)
				}
				return nil, syscall.ECONNREFUSED
			},
		}
		conn := &scripted{say: bytes.NewReader(data)}
		if err := g.HandleSOCKS5(conn); err != nil {
			t.Fatal(err)
		}
		if told := conn.told.Bytes(); bytes.Contains(told, []byte(socksReply(0))) {
			t.Errorf("was told %q, and nothing was connected", told)
		}
	})
}

// noAgent is an error of Dial that has no errno.
type noAgent struct{}

func (noAgent) Error() string     { return "no agent" }
func (noAgent) Unavailable() bool { return true }
