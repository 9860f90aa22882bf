package tunnel_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// TestSilentServer: an agent says who has accepted it and is silent, and in which phase.
func TestSilentServer(t *testing.T) {
	var proxy string // which is silent
	through := func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&dialer.HTTPConnect{Addr: proxy}).DialContext(ctx, network, address)
	}
	for _, tt := range []struct {
		name, scheme string
		dial         func(ctx context.Context, network, address string) (net.Conn, error)
		answer       string // before the silence
		want         string // PROXY stands for the proxy
	}{
		{"TLS", "", nil, "", "no answer in time: the HandshakeTimeout of 100ms is over: TLS handshake: context deadline exceeded"},
		{"ws", "ws://", nil, "", "no answer in time: websocket upgrade: context deadline exceeded: the HandshakeTimeout of 100ms is over"},
		{"wss", "wss://", nil, "", "no answer in time: the HandshakeTimeout of 100ms is over: outer TLS handshake: context deadline exceeded"},
		{"what is behind a proxy", "", through, "HTTP/1.1 200 OK\r\n\r\n", "no answer in time: the HandshakeTimeout of 100ms is over: through the proxy PROXY: TLS handshake: context deadline exceeded"},
		{"a proxy", "", through, "", "no answer in time: dialer: 127.0.0.1:1 through http://PROXY: connect: context deadline exceeded: the HandshakeTimeout of 100ms is over"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
				if tt.answer != "" {
					http.ReadRequest(bufio.NewReader(conn))
					io.WriteString(conn, tt.answer)
				}
				io.Copy(io.Discard, conn)
			})
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
