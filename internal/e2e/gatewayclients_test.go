package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// gatewayDoor serves a door on loopback until the test ends.
func gatewayDoor(t *testing.T, g *gateway.Gateway, serve func(context.Context, net.Listener) error) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serve(context.Background(), l) }()
	t.Cleanup(func() {
		g.Close()
		if err := <-done; err != nil {
			t.Errorf("got %v from the door", err)
		}
	})
	return l.Addr().String()
}

// gatewayTo leads to a web server by one address, and nothing else anywhere.
func gatewayTo(server *httptest.Server, address string) func(context.Context, gateway.Request) (net.Conn, error) {
	return func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		if r.Address != address {
			return nil, &net.DNSError{Err: "no such host", Name: r.Address, IsNotFound: true}
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
}

func greet(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s for %s", r.Proto, r.Host) }

func runCurl(t *testing.T, args ...string) (string, error) {
	args = append([]string{"-sSi", "-m", "20", "--noproxy", ""}, args...)
	out, err := exec.CommandContext(t.Context(), "curl", args...).CombinedOutput()
	return string(out), err
}

// TestGatewaySOCKS5Curl: curl goes through, and says why it does not.
func TestGatewaySOCKS5Curl(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(greet))
	defer server.Close()
	g := &gateway.Gateway{Dial: gatewayTo(server, "api.example.com:80")}
	g.Authenticate = func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if c.User != "ann" || c.Password != "secret" {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		return gateway.Identity{Name: c.User}, nil
	}
	addr := gatewayDoor(t, g, g.ServeSOCKS5)
	const url = "http://api.example.com/"
	for _, tt := range []struct {
		name string
		args []string
		ok   bool
		want string
	}{
		{"password", []string{"--socks5-hostname", addr, "-U", "ann:secret", url}, true, "HTTP/1.1 for api.example.com"},
		{"wrong password", []string{"--socks5-hostname", addr, "-U", "ann:wrong", url}, false, "User was rejected by the SOCKS5 server (1 1)"},
		{"no password", []string{"--socks5-hostname", addr, url}, false, "No authentication method was acceptable"},
		{"no such host", []string{"--socks5-hostname", addr, "-U", "ann:secret", "http://other.example.com/"}, false, "(4)"},
		{"SOCKS4", []string{"--socks4a", addr, url}, false, "(91)"},
		{"as an HTTP proxy", []string{"-x", "http://" + addr, url}, true, "400 Bad Request: this is a SOCKS5 proxy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out, err := runCurl(t, tt.args...); !strings.Contains(out, tt.want) || (err == nil) != tt.ok {
				t.Errorf("got %q, %v; want %q", out, err, tt.want)
			}
		})
	}
}

// TestGatewaySNICurl: so it does with server names, and with what the table
// says at the time.
func TestGatewaySNICurl(t *testing.T) {
	ca := pki.NewCA("gateway")
	server := httptest.NewUnstartedServer(http.HandlerFunc(greet))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server("api.example.com", "new.example.com")}}
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bundle, ca.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	table, place := &gateway.Table{}, gateway.Place{Cluster: "prod", Address: "kubernetes.default.svc:443"}
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Route: gateway.ByTable(table), Dial: gatewayTo(server, place.Address)}
	addr := gatewayDoor(t, g, g.ServeSNI)
	_, port, _ := net.SplitHostPort(addr)
	get := func(name string) (string, error) {
		return runCurl(t, "--cacert", bundle, "--resolve", name+":"+port+":127.0.0.1", "https://"+name+":"+port+"/")
	}
	check := func(name string, ok bool, want string) {
		t.Helper()
		if out, err := get(name); !strings.Contains(out, want) || (err == nil) != ok {
			t.Errorf("%s: got %q, %v; want %q", name, out, err, want)
		}
	}
	table.Set(map[string]gateway.Place{"api.example.com": place, "down.example.com": {Cluster: "prod", Address: "x:1"}})
	check("api.example.com", true, "HTTP/2.0 for api.example.com")
	check("new.example.com", false, "unrecognized name")
	check("down.example.com", false, "internal error")
	table.Set(map[string]gateway.Place{"*.example.com": place})
	check("new.example.com", true, "HTTP/2.0 for new.example.com")
	if out, err := runCurl(t, "http://"+addr+"/"); err != nil || !strings.Contains(out, "Use an https URL") {
		t.Errorf("plain HTTP: got %q, %v", out, err)
	}
}
