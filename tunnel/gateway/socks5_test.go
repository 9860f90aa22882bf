package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

const (
	annLogin = "\x01\x03ann\x06secret" // what password lets in
	askName  = "\x05\x01\x00\x03\x0fapi.example.com\x01\xbb"
	zeroes   = "\x00\x01\x00\x00\x00\x00\x00\x00"
)

// bare lets those in who show nothing.
func bare(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
	if c.User != "" || c.Password != "" || c.Address != "" {
		return gateway.Identity{}, fmt.Errorf("shown %+v", c)
	}
	return gateway.Identity{}, nil
}

// What a client of SOCKS5 says, and all that it is answered.
func TestSOCKS5Raw(t *testing.T) {
	const none, login = "\x05\x01\x00", "\x05\x01\x02"
	reply := func(code byte) string { return "\x05" + string([]byte{code}) + zeroes }
	long := strings.Repeat("n", 255)
	tests := []struct {
		name, say string
		auth      func(context.Context, gateway.Credentials) (gateway.Identity, error)
		set       func(*gateway.Gateway)
		dial      error
		want      string
		target    string // that Dial is asked for
		text      string // of the failure
	}{
		{name: "name", say: none + askName + "early", want: "\x05\x00" + reply(0) + "early", target: "api.example.com:443"},
		{name: "longest name", say: none + "\x05\x01\x00\x03\xff" + long + "\x00\x01", want: "\x05\x00" + reply(0), target: long + ":1"},
		{name: "IPv4", say: none + "\x05\x01\x00\x01\xc0\x00\x02\x0a\x19\x2b", want: "\x05\x00" + reply(0), target: "192.0.2.10:6443"},
		{name: "IPv6", say: none + "\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x01\xbb", want: "\x05\x00" + reply(0), target: "[2001:db8::1]:443"},
		{name: "mapped IPv4", say: none + "\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\xc0\x00\x02\x0a\x19\x2b", want: "\x05\x00" + reply(0), target: "192.0.2.10:6443"},
		{name: "IPv6 as a name", say: none + "\x05\x01\x00\x03\x0b2001:db8::1\x01\xbb", want: "\x05\x00" + reply(0), target: "[2001:db8::1]:443"},
		{name: "login", say: login + annLogin + askName + "early", auth: password, want: "\x05\x02\x01\x00" + reply(0) + "early", target: "api.example.com:443"},
		{name: "login is preferred", say: "\x05\x03\x00\x01\x02" + annLogin + askName, auth: password, want: "\x05\x02\x01\x00" + reply(0), target: "api.example.com:443"},
		{name: "longest login", say: login + "\x01\xff" + long + "\xff" + long + askName + strings.Repeat("e", 600), want: "\x05\x02\x01\x00" + reply(0) + strings.Repeat("e", 600), target: "api.example.com:443",
			auth: func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
				if c.User != long || c.Password != long {
					return gateway.Identity{}, errors.New("other ones")
				}
				return gateway.Identity{Name: "long"}, nil
			}},
		{name: "all that is longest", say: "\x05\xff" + strings.Repeat("\x02", 255) + "\x01\xff" + long + "\xff" + long + "\x05\x01\x00\x03\xff" + long + "\x00\x01" + "early",
			auth: gateway.Anyone, want: "\x05\x02\x01\x00" + reply(0) + "early", target: long + ":1"},
		{name: "empty login shows nothing", say: login + "\x01\x00\x00" + askName, want: "\x05\x02\x01\x00" + reply(0), target: "api.example.com:443"},
		{name: "255 methods", say: "\x05\xff" + strings.Repeat("\x80", 254) + "\x00" + askName, want: "\x05\x00" + reply(0), target: "api.example.com:443"},

		{name: "wrong password", say: login + "\x01\x03ann\x01x" + askName, auth: password, want: "\x05\x02\x01\x01", text: "authenticate"},
		{name: "no password", say: none + askName, auth: password, want: "\x05\xff", text: "authenticate"},
		{name: "nobody is let in", say: none + askName, set: func(g *gateway.Gateway) { g.Authenticate = nil }, want: "\x05\xff", text: "nobody"},
		{name: "no method", say: "\x05\x00" + askName, want: "\x05\xff", text: "neither"},
		{name: "GSSAPI alone", say: "\x05\x01\x01", want: "\x05\xff", text: "neither"},
		{name: "login of version 5", say: login + "\x05\x03ann\x06secret", auth: password, want: "\x05\x02\x01\x01", text: "malformed"},
		{name: "BIND", say: none + "\x05\x02" + askName[2:], want: "\x05\x00" + reply(7), text: "CONNECT"},
		{name: "UDP", say: none + "\x05\x03" + askName[2:], want: "\x05\x00" + reply(7), text: "CONNECT"},
		{name: "address type", say: none + "\x05\x01\x00\x02xx", want: "\x05\x00" + reply(8), text: "address type"},
		{name: "empty name", say: none + "\x05\x01\x00\x03\x00\x01\xbb", want: "\x05\x00" + reply(1), text: "no name"},
		{name: "NUL in the name", say: none + "\x05\x01\x00\x03\x03a\x00b\x01\xbb", want: "\x05\x00" + reply(1), text: "no name"},
		{name: "port in the name", say: none + "\x05\x01\x00\x03\x03a:1\x01\xbb", want: "\x05\x00" + reply(1), text: "no name"},
		{name: "zone", say: none + "\x05\x01\x00\x03\x0bfe80::1%eth\x01\xbb", want: "\x05\x00" + reply(1), text: "no name"},
		{name: "port 0", say: none + "\x05\x01\x00\x03\x01a\x00\x00", want: "\x05\x00" + reply(1), text: "port"},
		{name: "request of version 4", say: none + "\x04\x01\x00\x03\x01a\x00\x50", want: "\x05\x00" + reply(1), text: "not one of SOCKS5"},
		{name: "cut", say: none + askName[:9], want: "\x05\x00", text: io.ErrUnexpectedEOF.Error()},
		{name: "host unreachable", say: none + askName, dial: syscall.EHOSTUNREACH, want: "\x05\x00" + reply(4), target: "api.example.com:443", text: "no route to host"},
		{name: "malformed route", say: none + askName, set: func(g *gateway.Gateway) {
			g.Route = func(context.Context, *gateway.Request) error { return errors.New("odd") }
		}, want: "\x05\x00" + reply(1), text: "odd"},

		{name: "SOCKS4", say: "\x04\x01\x01\xbb\xc0\x00\x02\x0a\x00", want: "\x00\x5b\x00\x00\x00\x00\x00\x00", text: "SOCKS4"},
		{name: "SOCKS4a", say: "\x04\x01\x01\xbb\x00\x00\x00\x01me\x00a.b\x00", want: "\x00\x5b\x00\x00\x00\x00\x00\x00", text: "SOCKS4"},
		{name: "HTTP", say: "CONNECT a:1 HTTP/1.1\r\n\r\n", want: "HTTP/1.1 400 Bad Request: this is a SOCKS5 proxy\r\nContent-Type: text/plain\r\nContent-Length: 24\r\nConnection: close\r\n\r\nThis is a SOCKS5 proxy.\n", text: "HTTP"},
		{name: "TLS", say: oneRecord(), want: alert(10), text: "TLS"},
		{name: "no SOCKS", say: "\x00\x00", text: "does not speak SOCKS5"},
		{name: "slow", say: none + askName[:5], set: func(g *gateway.Gateway) { g.HandshakeTimeout = 200 * time.Millisecond }, want: "\x05\x00", text: "timeout"},
		{name: "SOCKS5 at a door with TLS", say: none + askName, set: func(g *gateway.Gateway) { g.TLS = serverTLS() }, want: "\x05\xff", text: "this door has TLS"},
		{name: "no room", say: none + askName, set: func(g *gateway.Gateway) { g.MaxConns = -1 }, want: "\x05\x00" + reply(1), text: "too many"},
		{name: "nobody may wait", set: func(g *gateway.Gateway) { g.MaxPending = -1 }, want: "\x05\xff", text: "too many"},
		{name: "nobody may wait at a door with TLS", set: func(g *gateway.Gateway) { g.MaxPending, g.TLS = -1, serverTLS() }, text: "too many"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, seen, asked := &gateway.Gateway{Authenticate: tt.auth}, &failures{}, make(chan string, 1)
			if tt.auth == nil {
				g.Authenticate = bare
			}
			if tt.set != nil {
				tt.set(g)
			}
			g.Hooks.Failed = seen.hook
			g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
				if asked <- r.Address; tt.dial != nil {
					return nil, tt.dial
				}
				return dialTarget(t, ctx, r)
			}
			addr, _ := open(t, g, g.ServeSOCKS5)
			conn := call(t, addr)
			send(t, conn, tt.say)
			got := make([]byte, len(tt.want))
			n, err := io.ReadFull(conn, got)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v; want %q", got[:n], err, tt.want)
			}
			if tt.name != "slow" {
				conn.CloseWrite()
			}
			if rest, err := io.ReadAll(conn); len(rest) > 0 || err != nil {
				t.Errorf("got %q, %v after the answer; want the end", rest, err)
			}
			target := ""
			if len(asked) > 0 {
				target = <-asked
			}
			if target != tt.target {
				t.Errorf("asked for %q, want %q", target, tt.target)
			}
			if tt.text == "" {
				return
			}
			if e := seen.only(t, g); e.Request.Door != gateway.DoorSOCKS5 || !strings.Contains(e.Error(), tt.text) || strings.Contains(e.Error(), "secret") {
				t.Errorf("got %v, want %q", e, tt.text)
			}
		})
	}
}

// TestSOCKS5Certificates: a client that shows a certificate needs no password,
// and one that nobody has verified is not shown.
func TestSOCKS5Certificates(t *testing.T) {
	for _, auth := range []tls.ClientAuthType{tls.RequireAndVerifyClientCert, tls.RequestClientCert} {
		t.Run(auth.String(), func(t *testing.T) {
			got := make(chan gateway.Credentials, 1)
			cfg := serverTLS()
			cfg.ClientAuth, cfg.ClientCAs = auth, ca.Pool()
			g := &gateway.Gateway{TLS: cfg, Authenticate: func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
				got <- c
				return gateway.Identity{Name: "someone"}, nil
			}}
			g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) { return dialTarget(t, ctx, r) }
			addr, _ := open(t, g, g.ServeSOCKS5)
			client := clientTLS()
			client.Certificates = []tls.Certificate{ca.Client("ann")}
			d := &dialer.SOCKS5{Addr: addr, Forward: dialer.Func((&tls.Dialer{Config: client}).DialContext)}
			conn, err := d.DialContext(t.Context(), "tcp", "a:1")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c := <-got
			if verified := auth == tls.RequireAndVerifyClientCert; verified != (len(c.Certificates) > 0) || c.ServerName != "gateway" || c.User != "" {
				t.Errorf("got %d certificates and %+v, want some: %v", len(c.Certificates), c, verified)
			}
		})
	}
}

// said is a connection whose client says what it says, and then waits.
type said struct {
	net.Conn
	r        *bytes.Reader
	answered bytes.Buffer
}

func (c *said) Read(p []byte) (int, error)       { return c.r.Read(p) }
func (c *said) Write(p []byte) (int, error)      { return c.answered.Write(p) }
func (c *said) Close() error                     { return nil }
func (c *said) CloseWrite() error                { return nil }
func (c *said) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *said) SetDeadline(time.Time) error      { return nil }
func (c *said) SetReadDeadline(time.Time) error  { return nil }
func (c *said) SetWriteDeadline(time.Time) error { return nil }

// simpleSOCKS5 is what a server that has read data as a whole makes of it: who
// asks for what, and what the answers are but for the last. ok says that there
// is a request to be dialed.
func simpleSOCKS5(data []byte) (user, pass, target, answers string, ok bool) {
	take := func(n int) (b []byte) {
		if n > len(data) {
			panic("cut")
		}
		b, data = data[:n], data[n:]
		return b
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	if take(1)[0] != 5 {
		return
	}
	methods := take(int(take(1)[0]))
	switch {
	case bytes.Contains(methods, []byte{2}):
		answers = "\x05\x02"
		if take(1)[0] != 1 {
			return
		}
		user = string(take(int(take(1)[0])))
		pass = string(take(int(take(1)[0])))
		answers += "\x01\x00"
	case bytes.Contains(methods, []byte{0}):
		answers = "\x05\x00"
	default:
		return
	}
	head := take(4)
	host := ""
	switch head[3] {
	case 1:
		host = netip.AddrFrom4([4]byte(take(4))).String()
	case 3:
		host = string(take(int(take(1)[0])))
	case 4:
		host = netip.AddrFrom16([16]byte(take(16))).Unmap().String()
	default:
		return
	}
	port := binary.BigEndian.Uint16(take(2))
	if ip, err := netip.ParseAddr(host); (err != nil || ip.Zone() != "") && (host == "" || strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") != "") {
		return
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	return user, pass, fmt.Sprintf("%s:%d", host, port), answers, head[0] == 5 && head[1] == 1 && port != 0
}

func FuzzSOCKS5Server(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		user, pass, target, answers, ok := simpleSOCKS5(data)
		dialed := false
		g := &gateway.Gateway{
			Authenticate: func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
				if ok && (c.User != user || c.Password != pass) {
					t.Errorf("got user %q, %q; want %q, %q", c.User, c.Password, user, pass)
				}
				return gateway.Identity{}, nil
			},
			Dial: func(_ context.Context, r gateway.Request) (net.Conn, error) {
				if dialed = true; r.Address != target {
					t.Errorf("got target %q, want %q", r.Address, target)
				}
				return nil, syscall.ECONNREFUSED
			},
		}
		conn := &said{r: bytes.NewReader(data)}
		if err := g.HandleSOCKS5(conn); err != nil {
			t.Fatal(err)
		}
		if got := conn.answered.String(); dialed != ok || ok && got != answers+"\x05\x05"+zeroes {
			t.Errorf("dialed: %v, want %v; answered %q, want %q and a refusal", dialed, ok, got, answers)
		}
		if s := g.Status(); s.Open != 0 || s.Total != 1 || s.Failed > 1 {
			t.Errorf("got %+v", s)
		}
	})
}
