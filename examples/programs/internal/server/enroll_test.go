package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
)

// One invitation lets several machines in, is shown again while agents are left, and ends
// with the cluster's agents, at all replicas; whichever state keeps it.
func TestEnrollSeveral(t *testing.T) {
	for _, secrets := range []bool{false, true} {
		name := map[bool]string{false: "state", true: "secrets"}[secrets]
		t.Run(name, func(t *testing.T) {
			var flags, listen []string
			if secrets {
				r := startReplicas(t)
				flags, listen = r.flags, []string{address(r.servers[0], "listen"), address(r.servers[1], "listen")}
			} else {
				flags = []string{"--state", t.TempDir()}
				p := startServer(t, flags[1])
				listen = []string{address(p, "listen"), address(p, "listen")}
			}
			enroll := func(more ...string) error {
				return run(t.Context(), append([]string{"enroll", cluster, "--server", "a:1"}, append(more, flags...)...), nil, io.Discard, io.Discard)
			}
			print := func(more ...string) tunnel.Invitation {
				t.Helper()
				inv, err := tunnel.ParseInvitation(output(t, "", append(append([]string{"enroll", cluster, "--server", "a:1", "--format", "env"}, more...), flags...)...))
				if err != nil {
					t.Fatal(err)
				}
				return inv
			}
			none := func(when string) {
				t.Helper()
				if err := enroll("--show"); err == nil || !strings.Contains(err.Error(), "Without --show, enroll makes one") {
					t.Errorf("%s: got %v, want how to make one", when, err)
				}
			}
			none("before any")
			made := print("--agents", "2", "--life", "24h")
			shown := print("--show")
			if shown.Token == "" || shown.Pin != made.Pin || !shown.Expires.Equal(made.Expires) {
				t.Errorf("got %v again, want %v", shown, made)
			}
			if text := output(t, "", append([]string{"enroll", cluster, "--show", "--server", "a:1", "--format", "systemd"}, flags...)...); !strings.Contains(text, "a token, for 2 agents, until") {
				t.Errorf("got %.300s, want how many agents are left", text)
			}
			var agents []*agentEvents
			for n, inv := range []tunnel.Invitation{made, shown} {
				inv.Servers = listen[n : n+1]
				e := startAgent(t, inv, "127.0.0.1:1", nil)
				receive(t, "connection", e.connected)
				agents = append(agents, e)
			}
			none("when it is used up")
			print()
			if got := output(t, "", append([]string{"revoke", cluster, "--all"}, flags...)...); !strings.Contains(got, cluster) {
				t.Errorf("got %q", got)
			}
			for _, e := range agents {
				receive(t, "end of the session", e.disconnected)
				for {
					var refused *tunnel.Error
					if err := receive(t, "refusal", e.failed); errors.As(err, &refused) && refused.Code == tunnel.CodeRevoked {
						break
					}
				}
			}
			none("after revoke --all")
			later := print()
			later.Servers = listen[:1]
			receive(t, "connection by a later invitation", startAgent(t, later, "127.0.0.1:1", nil).connected)
		})
	}
}

func TestEnrollMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"enroll a/b --agents 0":                      "--agents must be from 1 to 1000",
		"enroll a/b --agents 1001":                   "--agents must be from 1 to 1000",
		"enroll a/b --show --agents 2":               "--agents and --show exclude each other",
		"enroll a/b --show --life 2h":                "--life and --show exclude each other",
		"enroll a/b --show --join --format manifest": "--join and --show exclude each other",
		"ticket --revoke --revoke-all":               "--revoke and --revoke-all exclude each other",
		"revoke a/b":                                 "give --all",
		"revoke a/b agent --all":                     "want one of them",
		"revoke --all":                               "CLUSTER",
		"revoke a/b agent more":                      "unexpected argument",
	} {
		err := run(context.Background(), append(strings.Fields(args), "--state", t.TempDir()), nil, io.Discard, io.Discard)
		var mistake cli.UsageError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a mistake of usage with %q", args, err, want)
		}
	}
}
