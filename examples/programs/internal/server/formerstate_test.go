package server

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// testdata/former-state is what the commands of commit ce2c881 have written: a token of
// default/prod for three agents that one has used; default/gone, revoked three times, and
// its token; an agent that was revoked; a payload; a registration. former-tickets are one
// for default/prod, one that was revoked, and one for default/gone.
func TestFormerState(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/former-state")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, authorityFile), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := (&stateFlags{dir: dir}).open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server, err := st.server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	for cluster, want := range map[string]int{"default/prod": 2, "default/gone": 0} {
		left := 0
		open, err := server.Invitations(t.Context(), cluster)
		for _, i := range open {
			left += i.Agents
		}
		if err != nil || left != want {
			t.Errorf("%s: got %v, %v, want room for %d agents", cluster, open, err, want)
		}
	}
	for id, want := range map[tunnel.Identity]bool{
		{Cluster: "default/prod", Agent: "aaaaaaaaaaaaaaaa"}: true,
		{Cluster: "default/prod", Agent: "bbbbbbbbbbbbbbbb"}: false,
		{Cluster: "default/gone"}:                            true,
		{Cluster: "default/prod"}:                            false,
	} {
		if at, err := st.Revoked(t.Context(), id); err != nil || at.IsZero() == want {
			t.Errorf("%v: got %v, %v, revoked: want %t", id, at, err, want)
		}
	}
	if got, err := st.Revoked(t.Context(), tunnel.Identity{Cluster: "default/gone"}); err != nil || got.UnixMilli() != 1795635748622 {
		t.Errorf("got %v, %v, want the last revocation", got, err)
	}
	if got, err := st.payloads(t.Context(), "default/prod"); err != nil || len(got) != 1 || got[0].Name != "authorized_keys" || string(got[0].Data) != "key" {
		t.Errorf("got the payloads %q, %v", got, err)
	}
	if got, err := readJoins(t.Context(), st); err != nil || len(got) != 1 || got[0].Cluster != "default/joined" {
		t.Errorf("got the registrations %v, %v", got, err)
	}
	if got, err := advertisedServers(t.Context(), st); err != nil || !slices.Equal(got, []string{"127.0.0.1:18443"}) {
		t.Errorf("got the servers %v, %v", got, err)
	}
	testFormerTickets(t, st)
	testFormerReads(t, st)
}

func testFormerTickets(t *testing.T, st *state) {
	text, err := os.ReadFile("testdata/former-tickets")
	if err != nil {
		t.Fatal(err)
	}
	var all tickets
	all.followRevocations(st)
	if err := loadTickets(t.Context(), st, &all); err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Fields(string(text)) {
		u, err := url.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		_, err = all.Authenticate(t.Context(), gateway.Credentials{User: u.User.Username(), Password: password})
		var told *gateway.TicketError
		if revoked := errors.As(err, &told) && told.Revoked; revoked != (n > 0) || n == 0 && err != nil {
			t.Errorf("ticket %d: got %v; want it revoked: %t", n, err, n > 0)
		}
	}
}

// testFormerReads writes, and looks for the files that the servers of ce2c881 read.
func testFormerReads(t *testing.T, st *state) {
	ctx := t.Context()
	if _, err := st.ClaimToken(ctx, "egibsla5ligkrubx", "second"); err != nil {
		t.Fatal(err)
	}
	at, err := st.Revoke(ctx, tunnel.Identity{Cluster: "default/gone"}, time.UnixMilli(1))
	if err != nil || at.UnixMilli() != 1795635748623 {
		t.Errorf("got %v, %v, want the millisecond after the last one", at, err)
	}
	if err := st.setPayload(ctx, "default/prod", tunnel.Payload{Name: "authorized_keys", Data: []byte("other")}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"tokens/egibsla5ligkrubx.2.key": "second",
		"revoked/867f20a148240b59b12f50dd83c9ed066adbba92efa9bda514c8a1f8e07cda47.clusters/1795635748623.json": `{"cluster":"default/gone","at":"`,
		"payloads/=default%2Fprod/=authorized_keys":                                                            "other",
	} {
		if text, err := os.ReadFile(filepath.Join(st.dir, name)); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: got %q, %v, want %q", name, text, err, want)
		}
	}
}
