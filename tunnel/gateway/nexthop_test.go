package gateway_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// byAgent is a target's connection that an agent has made.
type byAgent struct{ net.Conn }

func (byAgent) RemoteAddr() net.Addr {
	return tunnel.Addr{Cluster: "c", Target: "a:1", Agent: `k3"v7`, Replica: "pod-1", Peer: "server-2"}
}

// Who has connected the target is in the answer, in both versions of HTTP.
func TestNextHop(t *testing.T) {
	const want = `causeway; next-hop="agent k3\"v7 of pod-1 by replica server-2"`
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		conn, err := dialTarget(t, ctx, r)
		return byAgent{conn}, err
	}}
	conn := serveTCP(t, g)
	if _, err := io.WriteString(conn, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer := "HTTP/1.1 200 OK\r\nProxy-Status: " + want + "\r\n\r\n"
	first := make([]byte, len(answer))
	if _, err := io.ReadFull(conn, first); err != nil || string(first) != answer {
		t.Errorf("got %q, %v", first, err)
	}
	var got []string
	ctx := dialer.WithTrace(t.Context(), &dialer.Trace{Done: func(e dialer.Event) { got = append(got, e.ProxyStatus) }})
	through, err := (&dialer.HTTPConnect{Addr: conn.RemoteAddr().String()}).DialContext(ctx, "tcp", "a:1")
	if err != nil {
		t.Fatal(err)
	}
	through.Close()
	if strings.Join(got, "") != want {
		t.Errorf("the dialer has seen %q, want %q", got, want)
	}
	two := &h2c{addr: conn.RemoteAddr()}
	defer func() { two.cc.Close() }()
	if status := two.connectedStatus(t); status != want {
		t.Errorf("by HTTP/2 got %q, want %q", status, want)
	}
}

// connectedStatus returns the Proxy-Status of a target that is connected.
func (c *h2c) connectedStatus(t *testing.T) string {
	cc, _, err := c.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	body, in := io.Pipe()
	defer in.Close()
	res, err := cc.RoundTrip(connectRequestOf("a:1", body).WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.Header.Get("Proxy-Status")
}
