package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// TestSilentServer: an agent says who has accepted it and is silent, and in which phase.
func TestSilentServer(t *testing.T) {
	silent := func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) }
	var proxy string // which is silent
	for _, tt := range []struct {
		name, scheme string
		dial         func(ctx context.Context, network, address string) (net.Conn, error)
		want         string // PROXY stands for the proxy
	}{
		{"TLS", "", nil, "no answer in time: TLS handshake: context deadline exceeded"},
		{"ws", "ws://", nil, "no answer in time: websocket upgrade: context deadline exceeded"},
		{"wss", "wss://", nil, "no answer in time: outer TLS handshake: context deadline exceeded"},
		{"a proxy", "", func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&dialer.HTTPConnect{Addr: proxy}).DialContext(ctx, network, address)
		}, "no answer in time: dialer: 127.0.0.1:1 through http://PROXY: connect: context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := proxytest.Serve(l, silent)
			defer s.Close()
			proxy = l.Addr().String()
			failed := make(chan error, 100)
			server := tt.scheme + proxy
			if tt.dial != nil {
				server = "127.0.0.1:1"
			}
			newBed(t, &tunnel.Server{}).start(&tunnel.Agent{
				Servers: []string{server}, Dial: tt.dial, HandshakeTimeout: 100 * time.Millisecond,
				Hooks: tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) {
					select {
					case failed <- err:
					default:
					}
				}},
			})
			err = <-failed
			if want := strings.ReplaceAll(tt.want, "PROXY", proxy); !strings.Contains(err.Error(), want) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}
