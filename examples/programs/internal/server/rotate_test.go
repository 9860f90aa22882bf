package server

import (
	"io"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

// Each step leaves what the next one needs, none can be left out, and an agent
// stays connected.
func TestRotate(t *testing.T) {
	r := startReplicas(t)
	st := newSecrets(t, r.api)
	inv, err := tunnel.ParseInvitation(r.output("", "enroll", cluster, "--format", "env", "--server", address(r.servers[0], "listen")))
	if err != nil {
		t.Fatal(err)
	}
	e := startAgent(t, inv, echo(t), nil)
	receive(t, "connection", e.connected)
	first, err := st.secrets.authority.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := ""
	for _, step := range []struct {
		name    string
		fails   bool
		first   bool // signs
		trusted int  // beside it
	}{
		{"switch", true, true, 0},
		{"drop", true, true, 0},
		{"add", false, true, 1},
		{"add", true, true, 1},
		{"drop", false, true, 0}, // thought better of it
		{"add", false, true, 1},
		{"switch", false, false, 1},
		{"switch", true, false, 1},
		{"add", true, false, 1},
		{"drop", false, false, 0},
	} {
		if err := run(t.Context(), append([]string{"rotate", step.name}, r.flags...), nil, io.Discard, io.Discard); (err != nil) != step.fails {
			t.Errorf("%s: got %v", step.name, err)
		}
		a, err := st.secrets.authority.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if (a.Pin() == first.Pin()) != step.first || len(a.Trusted) != step.trusted {
			t.Errorf("%s: got %v and %d trusted", step.name, a, len(a.Trusted))
		}
		if len(e.disconnected) > 0 && step.trusted > 0 {
			t.Errorf("%s: the agent was disconnected", step.name)
		}
		if !step.first && second == "" {
			second = a.Pin()
		}
		if !step.first && a.Pin() != second {
			t.Errorf("%s: got %v, want %s", step.name, a, second)
		}
	}
	if text := r.output("", "enroll", cluster, "--format", "env", "--server", "a:1"); !strings.Contains(text, second) {
		t.Errorf("got an invitation without the pin %s", second)
	}
}
