package server

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// TestRotateTooEarly: a step that would put agents out says so, and how many it may be.
func TestRotateTooEarly(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	at := func(ago time.Duration) []byte { return []byte(now.Add(-ago).UTC().Format(time.RFC3339)) }
	added := map[string][]byte{"next.crt": {1}, "trusted.crt": {1}}
	switched := map[string][]byte{"trusted.crt": {1}}
	for _, tt := range []struct {
		name, step string
		data       map[string][]byte
		at         []byte
		want       string
	}{
		{"switch at once", "switch", added, at(time.Second), "added 1s ago"},
		{"switch in time", "switch", added, at(time.Hour), ""},
		{"switch what an earlier version has added", "switch", added, nil, ""},
		{"switch at a damaged time", "switch", added, []byte("soon"), "not known when"},
		{"drop at once", "drop", switched, at(time.Second), "switched 1s ago"},
		{"drop a day early", "drop", switched, at(6 * 24 * time.Hour), "Wait until "},
		{"drop in time", "drop", switched, at(7*24*time.Hour + time.Minute), ""},
		{"drop what an earlier version has switched", "drop", switched, nil, "not known when"},
		{"drop what was only added", "drop", added, at(time.Hour), "switch comes next; drop --force removes it instead"},
		{"drop what an earlier version has added", "drop", added, nil, "switch comes next"},
		{"a damaged time", "drop", switched, []byte("soon"), "not known when"},
		{"add", "add", nil, nil, ""},
	} {
		data := maps.Clone(tt.data)
		if tt.at != nil {
			data["step"] = tt.at
		}
		err := checkStep(tt.step, data, now, false)
		if got := fmt.Sprint(err); (err != nil) != (tt.want != "") || err != nil && !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

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
		fails   string
		first   bool // signs
		trusted int  // beside it
	}{
		{"switch", "add comes first", true, 0},
		{"drop", "add comes first", true, 0},
		{"add", "", true, 1},
		{"add", "does not sign yet: switch comes next", true, 1},
		{"drop", "switch comes next", true, 1},
		{"drop --force", "", true, 0}, // thought better of it
		{"add", "", true, 1},
		{"switch", "Wait until each", true, 1},
		{"drop", "switch comes next", true, 1}, // not instead of the switch
		{"switch --force", "", false, 1},
		{"switch", "drop comes next", false, 1},
		{"switch --force", "drop comes next", false, 1},
		{"add", "drop comes next", false, 1},
		{"drop", "Wait until", false, 1},
		{"drop --force", "", false, 0},
	} {
		if err := run(t.Context(), slices.Concat([]string{"rotate"}, strings.Fields(step.name), r.flags), nil, io.Discard, io.Discard); (err != nil) != (step.fails != "") || err != nil && !strings.Contains(err.Error(), step.fails) {
			t.Errorf("%s: got %v, want %q", step.name, err, step.fails)
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
