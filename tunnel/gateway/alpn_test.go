package gateway_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// net/http, and so kubectl, offers h2 to an https proxy and then speaks HTTP/1.1,
// whatever was chosen. And an embedder's own list of protocols is kept.
func TestConnectALPN(t *testing.T) {
	ca := pki.NewCA("gateway")
	for _, tt := range []struct {
		name      string
		protos    []string
		perClient bool // by GetConfigForClient
		want      string
	}{
		{"default", nil, false, "h2"},
		{"HTTP/1.1 alone", []string{"http/1.1"}, false, "http/1.1"},
		{"default for each client", nil, true, "h2"},
		{"HTTP/1.1 alone for each client", []string{"http/1.1"}, true, "http/1.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}, NextProtos: tt.protos}
			if tt.perClient {
				chosen := config
				config = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }}
			}
			raw := serveTCP(t, &gateway.Gateway{
				Dial:         func(ctx context.Context, r gateway.Request) (net.Conn, error) { return dialTarget(t, ctx, r) },
				Authenticate: gateway.Anyone,
				TLS:          config,
			})
			conn := tls.Client(raw, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", NextProtos: []string{"h2", "http/1.1"}})
			if _, err := io.WriteString(conn, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if got := conn.ConnectionState().NegotiatedProtocol; got != tt.want {
				t.Errorf("got the protocol %q, want %q", got, tt.want)
			}
			const want = "HTTP/1.1 200 OK\r\n\r\n"
			got := make([]byte, len(want))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}
