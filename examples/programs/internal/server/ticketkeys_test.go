package server

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

func newMemoryState() *state {
	return &state{Records: &tunnel.Records{Store: new(tunnel.MemoryStore)}}
}

func newMemoryServer(st *state) (*tunnel.Server, error) {
	a, err := tunnel.NewAuthority()
	return &tunnel.Server{Authority: a, Store: st.Store}, err
}

// servingTickets are the tickets of a server, which reads the state when load is called.
type servingTickets struct{ *tickets }

func newServingTickets(t *testing.T, st *state) servingTickets {
	t.Helper()
	all := servingTickets{new(tickets)}
	all.followRevocations(st)
	all.load(t, st)
	return all
}

func (s servingTickets) load(t *testing.T, st *state) {
	t.Helper()
	if err := errors.Join(loadTickets(t.Context(), st, s.tickets), s.saveUses(t.Context(), st)); err != nil {
		t.Fatal(err)
	}
}

// want wants a ticket to be accepted, or to be refused with a text.
func (s servingTickets) want(t *testing.T, which string, c gateway.Credentials, refused string) {
	t.Helper()
	_, err := s.Authenticate(t.Context(), c)
	if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
		t.Errorf("%s: got %v, want %q", which, err, refused)
	}
}

func issueTicket(t *testing.T, s servingTickets, id gateway.Identity) gateway.Credentials {
	t.Helper()
	user, password, err := s.Issue(id, 8760*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return gateway.Credentials{User: user, Password: password}
}

// A new key loses no client, whatever server they are at: the former one is accepted until it
// is dropped, which says who still uses it.
func TestRotateTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newMemoryState()
		one, two := newServingTickets(t, st), newServingTickets(t, st)
		ann, bob := gateway.Identity{Name: "ann", Cluster: "default/prod"}, gateway.Identity{Name: "bob", Cluster: "default/prod"}
		anns, bobs := issueTicket(t, one, ann), issueTicket(t, one, bob)
		step := func(name, fails string) (out string) {
			t.Helper()
			step, force := strings.CutSuffix(name, " --force")
			var b strings.Builder
			err := rotateTickets(t.Context(), st, step, force, &b)
			if (err != nil) != (fails != "") || err != nil && !strings.Contains(err.Error(), fails) {
				t.Errorf("%s: got %v, want %q", name, err, fails)
			}
			return b.String()
		}
		step("switch", "add comes first")
		step("drop", "add comes first")
		step("add", "")
		step("add", "switch comes next")
		step("drop", "switch comes next")
		step("drop --force", "") // thought better of it
		one.load(t, st)
		one.want(t, "after a key that went", anns, "")
		step("add", "")
		one.load(t, st)
		two.load(t, st)
		step("switch", "Wait until 10m0s have passed")
		time.Sleep(10 * time.Minute)
		step("switch", "")
		step("switch", "drop comes next")
		one.load(t, st)
		fresh := issueTicket(t, one, ann)
		one.want(t, "the former key's", anns, "")
		one.want(t, "the former key's", bobs, "")
		two.want(t, "at a server that has not read the switch", fresh, "")
		two.load(t, st)
		two.want(t, "the new key's", fresh, "")
		if _, err := one.Tickets.Authenticate(t.Context(), anns); !errors.Is(err, gateway.ErrCredentials) {
			t.Errorf("got %v for what the Secrets of Clusters are checked by, want that they get a new ticket", err)
		}
		if got := step("drop", "0 clients have used"); got != "" {
			t.Errorf("got %q before the uses are saved", got)
		}
		one.load(t, st)
		if got := step("drop", "2 clients have used"); got != "2000-01-01T00:00:00Z  \"ann\" of default/prod\n2000-01-01T00:00:00Z  \"bob\" of default/prod\n" {
			t.Errorf("got the list\n%s", got)
		}
		time.Sleep(6 * 24 * time.Hour)
		two.want(t, "the former key's", bobs, "")
		two.load(t, st)
		time.Sleep(2 * 24 * time.Hour)
		if got := step("drop", "2000-01-14T00:00:00Z"); !strings.HasSuffix(got, "\n2000-01-07T00:00:00Z  \"bob\" of default/prod\n") {
			t.Errorf("got the list\n%s", got)
		}
		time.Sleep(5 * 24 * time.Hour)
		one.want(t, "the former key's, which is not noted before drop", anns, "")
		step("drop", "")
		for _, s := range []servingTickets{one, two} {
			s.load(t, st)
			s.want(t, "the dropped key's", anns, "the ticket was revoked; make a new one")
			s.want(t, "the new key's", fresh, "")
		}
		if left, err := st.Store.List(t.Context(), tunnel.KindValue, usePrefix); err != nil || len(left) > 0 {
			t.Errorf("got %v, %v after drop", left, err)
		}
	})
}

// While there are two keys, one ticket can be revoked, whichever has signed it, and all of both.
func TestRevokeRotated(t *testing.T) {
	st := newMemoryState()
	all, id := newServingTickets(t, st), gateway.Identity{Name: "ann", Cluster: "default/prod"}
	lost, kept := issueTicket(t, all, id), issueTicket(t, all, id)
	switchTickets(t, st)
	if _, err := revokeTicket(t.Context(), st, strings.NewReader("http://ann:"+lost.Password+"@gateway:3128")); err != nil {
		t.Fatal(err)
	}
	all.load(t, st)
	fresh := issueTicket(t, all, id)
	all.want(t, "the lost one", lost, "the ticket was revoked")
	all.want(t, "the other one of the former key", kept, "")
	all.load(t, st)
	if err := revokeTickets(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	all.load(t, st)
	if left, err := st.Store.List(t.Context(), tunnel.KindValue, usePrefix); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v after all were revoked", left, err)
	}
	for _, c := range []gateway.Credentials{lost, kept, fresh} {
		all.want(t, "one of before", c, "the ticket was revoked")
	}
	if err := rotateTickets(t.Context(), st, "drop", true, io.Discard); err == nil {
		t.Error("there is something left to drop after all were revoked")
	}
}

// switchTickets has a new key sign, and the former one be accepted.
func switchTickets(t *testing.T, st *state) {
	t.Helper()
	for _, step := range []string{"add", "switch"} {
		if err := rotateTickets(t.Context(), st, step, true, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
}

// A use is written once an hour, by all servers together.
func TestUsesAreWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newMemoryState()
		one, two := newServingTickets(t, st), newServingTickets(t, st)
		switchTickets(t, st)
		versions := map[string]bool{}
		for range 180 {
			for _, s := range []servingTickets{one, two} {
				s.noteUse(gateway.Identity{Name: "ann", Cluster: "default/prod"})
				s.load(t, st)
			}
			uses, err := st.Store.List(t.Context(), tunnel.KindValue, usePrefix)
			if err != nil || len(uses) != 1 {
				t.Fatalf("got %v, %v, want one use", uses, err)
			}
			versions[uses[0].Version] = true
			time.Sleep(time.Minute)
		}
		if len(versions) != 3 {
			t.Errorf("got %d writes in 3 hours", len(versions))
		}
	})
}
