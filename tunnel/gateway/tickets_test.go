package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

var ann = gateway.Identity{Name: "ann", Cluster: "ns/a"}

func TestTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := func(c byte) []byte { return bytes.Repeat([]byte{c}, 32) }
		var one, two, other gateway.Tickets
		if err := errors.Join(one.SetKeys(key(1)), two.SetKeys(key(2), key(1))); err != nil {
			t.Fatal(err)
		}
		user, password, err := one.Issue(ann, time.Hour)
		if err != nil || user != "ann" {
			t.Fatalf("got %q, %v", user, err)
		}
		valid := func(tickets *gateway.Tickets, user, password string) bool {
			id, err := tickets.Authenticate(context.Background(), gateway.Credentials{User: user, Password: password})
			if err == nil && id != ann {
				t.Errorf("got %+v, want %+v", id, ann)
			}
			return err == nil
		}
		changed := []byte(password)
		changed[30] ^= 1
		for _, tt := range []struct {
			name           string
			tickets        *gateway.Tickets
			user, password string
			want           bool
		}{
			{"issued here", &one, user, password, true},
			{"a replica with the key", &two, user, password, true},
			{"without it", &other, user, password, false},
			{"somebody else", &one, "bob", password, false},
			{"changed", &one, user, string(changed), false},
			{"cut", &one, user, password[:40], false},
			{"nothing", &one, "", "", false},
		} {
			if got := valid(tt.tickets, tt.user, tt.password); got != tt.want {
				t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
			}
		}

		two.Revoked = func(ticket gateway.Ticket) bool {
			return ticket.Identity == ann && ticket.Expires.Sub(ticket.Issued) == time.Hour
		}
		if valid(&two, user, password) {
			t.Error("a ticket that Revoked knows is valid")
		}
		two.Revoked = nil
		time.Sleep(time.Hour - time.Nanosecond)
		if !valid(&two, user, password) {
			t.Error("a ticket ended early")
		}
		time.Sleep(time.Nanosecond)
		if valid(&two, user, password) {
			t.Error("a ticket is valid beyond its end")
		}
	})
}

func TestTicketsRefuse(t *testing.T) {
	var tickets gateway.Tickets
	if tickets.SetKeys() == nil || tickets.SetKeys(make([]byte, 31)) == nil {
		t.Error("got no error from SetKeys without a good key")
	}
	for _, id := range []gateway.Identity{{}, {Name: "a:b"}, {Name: "a\n"}, {Name: strings.Repeat("n", 256)}, {Name: "a", Cluster: strings.Repeat("c", 143)}} {
		if user, _, err := tickets.Issue(id, time.Hour); err == nil {
			t.Errorf("got ticket for %q", user)
		}
	}
	if _, _, err := tickets.Issue(ann, 0); err == nil {
		t.Error("got a ticket without a life")
	}
	_, password, err := tickets.Issue(gateway.Identity{Name: "a", Cluster: strings.Repeat("c", 142)}, time.Hour)
	if err != nil || len(password) > 255 {
		t.Errorf("got a password of %d bytes, %v", len(password), err)
	}
}
