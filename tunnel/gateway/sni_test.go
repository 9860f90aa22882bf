package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// tableOf leads api.example.com to the cluster prod.
func tableOf() *gateway.Table {
	table := &gateway.Table{}
	table.Set(map[string]gateway.Place{"api.example.com": {Cluster: "prod", Address: "kubernetes.default.svc:443"}})
	return table
}

func alert(code byte) string { return string([]byte{21, 3, 3, 0, 2, 2, code}) }

// What the SNI door answers to those who get no target.
func TestSNIRefusals(t *testing.T) {
	ask := oneRecord(sniOf("api.example.com"))
	tests := []struct {
		name, say string
		set       func(*gateway.Gateway)
		dial      error
		want      string
		phase     gateway.Phase
		text      string
	}{
		{name: "unknown name", say: oneRecord(sniOf("other.example.com")), want: alert(112), phase: gateway.PhaseRoute, text: `nothing is served by the name "other.example.com"`},
		{name: "no name", say: oneRecord(), want: alert(112), phase: gateway.PhaseRoute, text: "nothing is served"},
		{name: "early data is read", say: oneRecord(sniOf("x.y")) + strings.Repeat("z", 200_000), want: alert(112), phase: gateway.PhaseRoute, text: "nothing"},
		{name: "not let in", say: ask, set: func(g *gateway.Gateway) { g.Authenticate = password }, want: alert(49), phase: gateway.PhaseAuthenticate, text: "credentials"},
		{name: "cluster of another", say: ask, set: func(g *gateway.Gateway) {
			g.Authenticate = func(context.Context, gateway.Credentials) (gateway.Identity, error) {
				return gateway.Identity{Name: "eve", Cluster: "test"}, nil
			}
		}, want: alert(49), phase: gateway.PhaseRoute, text: `may not reach cluster "prod"`},
		{name: "forbidden", say: ask, dial: syscall.EACCES, want: alert(49), phase: gateway.PhaseDial, text: "permission denied"},
		{name: "refused", say: ask, dial: syscall.ECONNREFUSED, want: alert(80), phase: gateway.PhaseDial, text: "connection refused"},
		{name: "HTTP", say: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", want: "HTTP/1.1 400 Bad Request: this port speaks TLS\r\n", phase: gateway.PhaseHandshake, text: "HTTP"},
		{name: "SSL 2", say: "\x80\x2e\x01\x00\x02\x00\x15", want: alert(70), phase: gateway.PhaseHandshake, text: "SSL 2"},
		{name: "malformed", say: oneRecord(sniOf("a.b", "c.d")), want: alert(50), phase: gateway.PhaseHandshake, text: "malformed"},
		{name: "too large", say: ask, set: func(g *gateway.Gateway) { g.MaxHeader = 20 }, want: alert(50), phase: gateway.PhaseHandshake, text: "too large"},
		{name: "slow", say: ask[:20], set: func(g *gateway.Gateway) { g.HandshakeTimeout = 200 * time.Millisecond }, want: "", phase: gateway.PhaseHandshake, text: "timeout"},
		{name: "no room", say: ask, set: func(g *gateway.Gateway) { g.MaxConns = -1 }, want: alert(80), phase: gateway.PhaseLimit, text: "too many"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, seen := &gateway.Gateway{Authenticate: gateway.Anyone}, &failures{}
			if tt.set != nil {
				tt.set(g)
			}
			g.Route, g.Hooks.Failed = gateway.ByTable(tableOf()), seen.hook
			g.Dial = func(context.Context, gateway.Request) (net.Conn, error) { return nil, tt.dial }
			addr, _ := open(t, g, g.ServeSNI)
			conn := call(t, addr)
			go io.WriteString(conn, tt.say)
			got, err := io.ReadAll(conn)
			if tt.name == "no room" && errors.Is(err, syscall.ECONNRESET) {
				err = nil // no time for more
			}
			if err != nil || !strings.HasPrefix(string(got), tt.want) || tt.want == "" && len(got) > 0 {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
			conn.Close()
			if e := seen.only(t, g); e.Phase != tt.phase || e.Request.Door != gateway.DoorSNI || !strings.Contains(e.Error(), tt.text) {
				t.Errorf("got %v, want phase %s and %q", e, tt.phase, tt.text)
			}
		})
	}
}

// A client that goes without a word is a health check, and no failure.
func TestSNISilent(t *testing.T) {
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Dial: func(context.Context, gateway.Request) (net.Conn, error) { return nil, net.ErrClosed }}
	g.Hooks.Failed = func(err error) { t.Errorf("got %v", err) }
	addr, _ := open(t, g, g.ServeSNI)
	conn := call(t, addr)
	conn.CloseWrite()
	if b, err := io.ReadAll(conn); len(b) != 0 || err != nil {
		t.Errorf("got %q, %v; want an end", b, err)
	}
}

// TestSNIRealTLS: a client and a server that know of nothing.
func TestSNIRealTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s for %s", r.Proto, r.TLS.ServerName)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server("gateway", "api.example.com")}}
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	table, got := tableOf(), make(chan gateway.Request, 10)
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Route: gateway.ByTable(table)}
	g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		got <- r
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	addr, _ := open(t, g, g.ServeSNI)
	client := server.Client()
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: ca.Pool()}
	client.Timeout = 20 * time.Second
	res, err := client.Get("https://API.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || string(body) != "HTTP/2.0 for API.example.com" {
		t.Errorf("got %q, %v", body, err)
	}
	if r := <-got; r.Cluster != "prod" || r.Address != "kubernetes.default.svc:443" || r.Door != gateway.DoorSNI || r.Credentials.Remote == nil {
		t.Errorf("got %+v", r)
	}
	if _, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "new.example.com"}); err == nil || err.Error() != "remote error: tls: unrecognized name" {
		t.Errorf("got %v, want unrecognized name", err)
	}
	table.Set(map[string]gateway.Place{"*.example.com": {Cluster: "prod", Address: "a:1"}}) // while it runs
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "api.example.com", MaxVersion: version})
		if err != nil {
			t.Errorf("TLS %x: got %v", version, err)
			continue
		}
		conn.Close()
	}
	server.CloseClientConnections()
	client.CloseIdleConnections()
}
