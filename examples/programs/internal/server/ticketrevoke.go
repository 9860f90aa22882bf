package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// revokedPrefix begins the names of the tickets that were revoked one by one; their ids
// follow.
const revokedPrefix = "ticket-revoked-"

// revokedTicket is the value of such a name.
type revokedTicket struct {
	Until time.Time `json:"until"` // it has ended then by itself
}

// ticketID returns the same for a ticket each time, and another text for another one.
func ticketID(t gateway.Ticket) string {
	return hashName(fmt.Sprintf("%q %q %d %d", t.Identity.Name, t.Identity.Cluster, t.Issued.UnixNano(), t.Expires.UnixNano()))
}

// loadRevoked reads which tickets were revoked one by one.
func (t *tickets) loadRevoked(ctx context.Context, st *state) error {
	all, err := st.Store.List(ctx, tunnel.KindValue, revokedPrefix)
	if err != nil {
		return err
	}
	ids := make(map[string]bool, len(all))
	for _, r := range all {
		ids[strings.TrimPrefix(r.Name, revokedPrefix)] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revokedIDs = ids
	return nil
}

// revokeTicket revokes the ticket in a kubeconfig, or in the URL that causeway ticket has
// printed. It forgets those that have ended.
func revokeTicket(ctx context.Context, st *state, from io.Reader) (gateway.Ticket, error) {
	user, err := readTicket(from)
	if err != nil {
		return gateway.Ticket{}, err
	}
	var t tickets
	if err := loadTickets(ctx, st, &t); err != nil {
		return gateway.Ticket{}, err
	}
	var ticket gateway.Ticket
	t.setRevoked(func(shown gateway.Ticket) bool {
		ticket = shown
		return false
	})
	password, _ := user.Password()
	if _, err := t.Authenticate(ctx, gateway.Credentials{User: user.Username(), Password: password}); err != nil {
		if former, ok := errors.AsType[*gateway.TicketError](err); ok {
			former.Hint = ""
			return gateway.Ticket{}, fmt.Errorf("standard input: %w: nothing is left to revoke", former)
		}
		return gateway.Ticket{}, errors.New("standard input: the ticket was not made by this server: name its own --state or --secrets")
	}
	if err = st.putJSON(ctx, revokedPrefix+ticketID(ticket), revokedTicket{ticket.Expires}); err == nil {
		err = forgetEnded(ctx, st)
	}
	return ticket, err
}

// forgetEnded removes the revocations of tickets that have ended a day ago, so that
// clocks need not agree. One whose end can't be read stays.
func forgetEnded(ctx context.Context, st *state) error {
	all, err := st.Store.List(ctx, tunnel.KindValue, revokedPrefix)
	for _, record := range all {
		var r revokedTicket
		if json.Unmarshal(record.Data, &r) != nil || r.Until.IsZero() || time.Since(r.Until) < 24*time.Hour {
			continue
		}
		err = errors.Join(err, st.Store.Delete(ctx, record))
	}
	return err
}

var errNoTicket = cli.Mistake("standard input has no ticket: want the URL that causeway ticket printed, or the kubeconfig that has it")

// readTicket returns user and password of the URL, or of the proxy-url of the kubeconfig's
// current context.
func readTicket(from io.Reader) (*url.Userinfo, error) {
	text, err := io.ReadAll(io.LimitReader(from, 1<<20))
	if err != nil {
		return nil, err
	}
	line := strings.TrimSpace(string(text))
	if strings.ContainsAny(line, " \n{") {
		config, err := readKubeconfig(strings.NewReader(line))
		if err != nil {
			return nil, err
		}
		line = config.Clusters[config.Contexts[config.CurrentContext].Cluster].ProxyURL
	}
	u, err := url.Parse(line)
	if err != nil || u.User == nil {
		return nil, errNoTicket // err has the ticket
	}
	return u.User, nil
}
