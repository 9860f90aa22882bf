package tunnel_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// TestServerPasswordIsHidden: the password and the query of a server's URL are in
// no error, and in nothing that hooks are told.
func TestServerPasswordIsHidden(t *testing.T) {
	told := make(chan string, 1)
	agent := &tunnel.Agent{
		Servers:     []string{"wss://ann:s3cr3t@gone.example/agent?token=s3cr3t"},
		Credentials: &tunnel.MemoryCredentials{},
		Invitation: func(context.Context) (tunnel.Invitation, error) {
			return newTunnelServer(t, &tunnel.MemoryStore{}).invite("prod"), nil
		},
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, net.UnknownNetworkError("none") },
		Hooks: tunnel.AgentHooks{Failed: func(server string, err error, _ time.Duration) {
			select {
			case told <- server + " " + err.Error():
			default:
			}
		}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	got := <-told
	cancel()
	<-done
	if strings.Contains(got, "s3cr3t") || strings.Count(got, "wss://ann:xxxxx@gone.example/agent?xxxxx") != 2 {
		t.Errorf("got %q, want the address twice, without its secrets", got)
	}
}
