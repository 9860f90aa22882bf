package server

import (
	"strings"
	"testing"
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
	if err := loadTickets(t.Context(), st, s.tickets); err != nil {
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
