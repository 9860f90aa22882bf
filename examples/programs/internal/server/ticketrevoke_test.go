package server

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// One ticket ends, at all servers of the state, and no other one of the same client.
func TestRevokeTicket(t *testing.T) {
	st, err := openDir(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var issuing tickets
	if err := loadTickets(t.Context(), st, &issuing); err != nil {
		t.Fatal(err)
	}
	issue := func(from *gateway.Tickets, life time.Duration) *url.URL {
		user, password, err := from.Issue(gateway.Identity{Name: "ann", Cluster: "default/prod"}, life)
		if err != nil {
			t.Fatal(err)
		}
		return &url.URL{Scheme: "http", User: url.UserPassword(user, password), Host: "127.0.0.1:3128"}
	}
	kept, byURL, byKubeconfig := issue(&issuing.Tickets, time.Hour), issue(&issuing.Tickets, time.Hour), issue(&issuing.Tickets, time.Hour)
	ended := issue(&issuing.Tickets, 1)
	kubeconfigWith := func(u *url.URL) string {
		return "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: https://x, proxy-url: \"" + u.String() + "\"}}]\n"
	}
	for _, tt := range []struct{ name, in, want string }{
		{"its URL", byURL.String() + "\n", ""},
		{"the same again", byURL.String() + "\n", ""},
		{"a kubeconfig", kubeconfigWith(byKubeconfig), ""},
		{"nothing", "", "standard input has no ticket"},
		{"a URL without one", "http://127.0.0.1:3128", "standard input has no ticket"},
		{"no URL", "http://ann:hunter2\x7f@x", "standard input has no ticket"},
		{"a kubeconfig without one", kubeconfigWith(&url.URL{Scheme: "http", Host: "x:1"}), "standard input has no ticket"},
		{"another server's", issue(new(gateway.Tickets), time.Hour).String(), "not made by this server"},
		{"a changed one", strings.Replace(kept.String(), "ann", "bob", 1), "not made by this server"},
		{"one that has ended", ended.String(), "the ticket ended at"},
	} {
		ticket, err := revokeTicket(t.Context(), st, strings.NewReader(tt.in))
		switch {
		case tt.want == "" && (err != nil || ticket.Identity.Name != "ann" || time.Until(ticket.Expires) < 50*time.Minute):
			t.Errorf("%s: got %+v, %v", tt.name, ticket, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: %v has the ticket", tt.name, err)
		}
	}
	var serving tickets
	serving.followRevocations(newMemoryState())
	if err := loadTickets(t.Context(), st, &serving); err != nil {
		t.Fatal(err)
	}
	for u, want := range map[*url.URL]bool{kept: false, byURL: true, byKubeconfig: true} {
		password, _ := u.User.Password()
		_, err := serving.Authenticate(t.Context(), gateway.Credentials{User: u.User.Username(), Password: password})
		var told *gateway.TicketError
		if got := errors.As(err, &told) && told.Revoked; got != want || !want && err != nil {
			t.Errorf("%v: got %v, want that it was revoked: %v", u.Redacted(), err, want)
		}
	}
}

// What was revoked is forgotten once the ticket has ended by itself.
func TestForgetRevoked(t *testing.T) {
	st, err := openDir(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for id, until := range map[string]time.Time{"old": time.Now().Add(-25 * time.Hour), "ended": time.Now().Add(-time.Hour), "valid": time.Now().Add(time.Hour)} {
		value, _ := json.Marshal(revokedTicket{until})
		if err := st.Put(t.Context(), valueRecord(revokedPrefix+id, value)); err != nil {
			t.Fatal(err)
		}
	}
	for id, value := range map[string]string{"empty": "", "other": "{}"} { // from a bad copy
		if err := st.Put(t.Context(), valueRecord(revokedPrefix+id, []byte(value))); err != nil {
			t.Fatal(err)
		}
	}
	if err := forgetEnded(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	var serving tickets
	if err := serving.loadRevoked(t.Context(), st); err != nil || len(serving.revokedIDs) != 4 || serving.revokedIDs["old"] {
		t.Errorf("got %v, %v, want that the old one is forgotten", serving.revokedIDs, err)
	}
}
