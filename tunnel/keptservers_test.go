package tunnel_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// An agent that has a certificate finds its server although the invitation is gone.
func TestAgentKeepsServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{}
		b := newBedAt(t, &tunnel.Server{Name: "s"}, w, "first:1")
		moved, err := w.Listen(t.Context(), "second:1")
		if err != nil {
			t.Fatal(err)
		}
		b.serveAlso(moved)
		store := tunnel.FileStore{Dir: t.TempDir()}
		full := b.invite()
		run := func(want string, invitation func(context.Context) (tunnel.Invitation, error), servers ...string) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			connected, ran := make(chan string, 1), make(chan error, 1)
			a := &tunnel.Agent{Dial: w.Dial, Credentials: store, Invitation: invitation, Servers: servers, Targets: testTargets(), Hooks: tunnel.AgentHooks{
				Connected: func(server string, _ tunnel.Identity) {
					select {
					case connected <- server:
					default:
					}
				},
				Failed: func(server string, err error, _ time.Duration) { t.Errorf("%s: %v", server, err); cancel() },
			}}
			go func() { ran <- a.Run(ctx) }()
			select {
			case got := <-connected:
				if got != want {
					t.Errorf("connected to %q, want %q", got, want)
				}
			case <-ctx.Done():
			}
			cancel()
			if err := <-ran; err != nil {
				t.Error(err)
			}
		}
		naming := func(servers ...string) func(context.Context) (tunnel.Invitation, error) {
			inv := full
			inv.Servers = servers
			return func(context.Context) (tunnel.Invitation, error) { return inv, nil }
		}
		gone := func(context.Context) (tunnel.Invitation, error) {
			return tunnel.Invitation{}, errors.New("no invitation")
		}
		run("first:1", naming("first:1"))
		run("first:1", gone)
		run("first:1", nil)
		run("second:1", gone, "second:1") // the field Servers counts first
		run("first:1", gone)
		run("second:1", naming("second:1")) // then an invitation that is there
		run("second:1", gone)
		other := full
		other.Cluster, other.Servers = "another/cluster", []string{"first:1"}
		run("first:1", func(context.Context) (tunnel.Invitation, error) { return other, nil })
		run("second:1", gone) // an invitation for another cluster is not kept
		text, err := os.ReadFile(store.Dir + "/credentials.pem")
		if err != nil || !strings.Contains(string(text), "BEGIN CAUSEWAY SERVERS") {
			t.Errorf("got %v, want the addresses beside the certificate", err)
		}
	})
}
