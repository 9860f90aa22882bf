package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/tunnel"
)

// headerFor is a PROXY header for a client.
func headerFor(t *testing.T, version byte, client string, change func(*proxyproto.Header)) []byte {
	t.Helper()
	from, err := net.ResolveTCPAddr("tcp", client)
	if err != nil {
		t.Fatal(err)
	}
	to := &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 443}
	if from.IP.To4() == nil {
		to.IP = net.ParseIP("2001:db8::1")
	}
	h := proxyproto.HeaderProxyFromAddrs(version, from, to)
	if change != nil {
		change(h)
	}
	text, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// dialFrom dials from an address of this machine, and sends text first.
func dialFrom(local string, text []byte) tunnel.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}).DialContext(ctx, network, address)
		if err == nil {
			_, err = conn.Write(text)
		}
		return conn, err
	}
}

const balancer, direct = "127.0.0.1", "127.0.0.2"

// startBehindBalancer runs a server behind a load balancer, and one agent that comes directly.
func startBehindBalancer(t *testing.T, args ...string) (p *clitest.Program, inv tunnel.Invitation, target string) {
	t.Helper()
	dir := t.TempDir()
	p = startServer(t, dir, append(args, "--proxy-protocol-from", balancer)...)
	inv = newInvitation(t, dir, "--server", address(p, "listen"), "--agents", "5")
	target = echo(t)
	e := startAgent(t, inv, target, func(a *tunnel.Agent) { a.Dial = dialFrom(direct, nil) })
	receive(t, "agent", e.connected)
	return p, inv, target
}

// The client is who the load balancer's header names.
func TestProxyProtocol(t *testing.T) {
	p, _, _ := startBehindBalancer(t)
	silent, err := dialFrom(balancer, nil)(t.Context(), "tcp", address(p, "forward"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // it holds up nobody
	long := func(h *proxyproto.Header) {
		h.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_UNIQUE_ID, Value: bytes.Repeat([]byte("x"), 900)}})
	}
	for i, tt := range []struct {
		name, local string
		version     byte
		client      string // its address; "": there is no header for one
		change      func(*proxyproto.Header)
		text        string // in place of a header
	}{
		{"v1", balancer, 1, "203.0.113.7", nil, ""},
		{"v1, IPv6", balancer, 1, "2001:db8::7", nil, ""},
		{"v2", balancer, 2, "203.0.113.7", nil, ""},
		{"v2, IPv6", balancer, 2, "2001:db8::7", nil, ""},
		{"v2, long", balancer, 2, "203.0.113.7", long, ""},
		{"no balancer", direct, 0, "", nil, ""},
		{"the balancer looks itself", balancer, 0, "", nil, "PROXY UNKNOWN\r\n"},
	} {
		for early, text := range []string{"", "hello"} {
			header, want := []byte(tt.text), tt.local+":"
			if tt.client != "" {
				want = net.JoinHostPort(tt.client, strconv.Itoa(4000+10*i+early))
				header = headerFor(t, tt.version, want, tt.change)
			}
			conn, err := dialFrom(tt.local, append(header, text...))(t.Context(), "tcp", address(p, "forward"))
			if err != nil {
				t.Fatal(err)
			}
			if text == "" {
				io.WriteString(conn, "hello")
			}
			conn.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(conn); string(got) != "hello" || err != nil {
				t.Errorf("%s, early %d: the target got %q, %v; want hello", tt.name, early, got, err)
			}
			conn.Close()
			p.Await(`msg=access remote="?` + regexp.QuoteMeta(want))
		}
	}
}

// A header may come in pieces.
func TestProxyProtocolInPieces(t *testing.T) {
	for version := byte(1); version <= 2; version++ {
		header := headerFor(t, version, "203.0.113.7:4567", nil)
		for n := 1; n < len(header); n++ {
			near, far := net.Pipe() // a Read gets no more than a Write has
			go func() {
				far.Write(header[:n])
				far.Write(header[n:])
			}()
			conn, err := readHeader(t.Context(), near)
			if err != nil {
				t.Errorf("version %d in %d bytes and the rest: %v", version, n, err)
			} else if conn.RemoteAddr().String() != "203.0.113.7:4567" {
				t.Errorf("version %d in %d bytes and the rest: got %v", version, n, conn.RemoteAddr())
			}
			near.Close()
			far.Close()
		}
	}
}

// A connection from a load balancer without a right header gets nowhere.
func TestProxyProtocolRefuses(t *testing.T) {
	p, _, _ := startBehindBalancer(t)
	unix := (&proxyproto.Header{Version: 2, Command: proxyproto.PROXY, TransportProtocol: proxyproto.UnixStream,
		SourceAddr: &net.UnixAddr{Net: "unix", Name: "a"}, DestinationAddr: &net.UnixAddr{Net: "unix", Name: "b"}})
	local, err := unix.Format()
	if err != nil {
		t.Fatal(err)
	}
	good := headerFor(t, 2, "203.0.113.7:4567", nil)
	huge := bytes.Clone(good)
	huge[14], huge[15] = 255, 255
	for name, text := range map[string][]byte{
		"nothing":        {},
		"no header":      []byte("hello, nothing of the kind"),
		"no CR":          []byte("PROXY TCP4 203.0.113.7 198.51.100.1 4567 443\n"),
		"wrong port":     []byte("PROXY TCP4 203.0.113.7 198.51.100.1 99999 443\r\n"),
		"wrong address":  []byte("PROXY TCP4 203.0.113.999 198.51.100.1 4567 443\r\n"),
		"too long":       append([]byte("PROXY TCP4 "), bytes.Repeat([]byte("1"), 200)...),
		"unix":           local,
		"a length of ff": huge,
		"cut":            good[:20],
	} {
		conn, err := dialFrom(balancer, text)(t.Context(), "tcp", address(p, "forward"))
		if err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if got, _ := io.ReadAll(conn); len(got) > 0 {
			t.Errorf("%s: got %q", name, got)
		}
		conn.Close()
	}
	p.Await(`msg="door failed" remote=127\.0\.0\.1:\d+ door=forward .*phase=handshake error="PROXY header, which --proxy-protocol-from asks`)
}

// A balancer that sends no header is in the log, the metrics and on the page, as any other
// stranger.
func TestProxyProtocolRefused(t *testing.T) {
	t.Parallel()
	p, _, _ := startBehindBalancer(t, "--connect", "127.0.0.1:0")
	for _, listener := range []string{"connect", "listen"} {
		conn, err := dialFrom(balancer, []byte("hello, nothing of the kind"))(t.Context(), "tcp", address(p, listener))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.Copy(io.Discard, conn)
		awaitBody(t, "http://"+address(p, "status")+"/", "Client of --"+listener+": handshake")
	}
	p.Await(`msg="door failed" .*door=connect .*error="PROXY header, which --proxy-protocol-from asks of this address: `)
	p.Await(`msg=refused .* error="tunnel: connect: malformed or unknown message: PROXY header`)
	clitest.CheckMetrics(t, "http://"+address(p, "status")+"/metrics", `causeway_tunnel_refusals_total{code="bad_request",op="connect"} 1`,
		`causeway_gateway_failures_total{door="connect",listener="connect",phase="handshake",side=""} 1`)
}

// Agents behind a load balancer have their own address on the status page; so have the
// clients of a door in the log.
func TestProxyProtocolStatus(t *testing.T) {
	p, inv, target := startBehindBalancer(t, "--connect", "127.0.0.1:0", "--websocket", "127.0.0.1:0")
	e := startAgent(t, inv, target, func(a *tunnel.Agent) {
		a.Dial = dialFrom(balancer, headerFor(t, 2, "203.0.113.7:1", nil))
	})
	receive(t, "agent", e.connected)
	inv.Servers = []string{"ws://" + address(p, "websocket")}
	e = startAgent(t, inv, target, func(a *tunnel.Agent) {
		a.Dial = dialFrom(balancer, headerFor(t, 1, "203.0.113.8:1", nil))
	})
	receive(t, "agent", e.connected)
	var status tunnel.Status
	res, err := http.Get("http://" + address(p, "status") + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	var remotes []string
	for _, s := range status.Clusters[0].Sessions {
		remotes = append(remotes, s.Remote)
	}
	if got := strings.Join(remotes, " "); !strings.Contains(got, "203.0.113.7:1") || !strings.Contains(got, "203.0.113.8:1") || !strings.Contains(got, direct+":") {
		t.Errorf("got the agents %s", got)
	}
	conn, err := dialFrom(balancer, append(headerFor(t, 2, "203.0.113.9:1", nil), "CONNECT api:443 HTTP/1.1\r\nHost: api:443\r\n\r\n"...))(t.Context(), "tcp", address(p, "connect"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.Await(`msg="door failed" remote=203\.0\.113\.9:1 `)
}

func TestProxyProtocolFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--proxy-protocol-from=10.0.0.0/99": "--proxy-protocol-from",
		"--proxy-protocol-from=10.0.0.1/24": "want 10.0.0.0/24",
		"--proxy-protocol-from=0.0.0.0/0":   "could name any client",
	} {
		err := run(t.Context(), []string{"--state", t.TempDir(), args}, nil, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
