package gateway_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// shown is a user name and password.
type shown struct{ user, password string }

// formerTickets are the credentials of a client whose ticket has ended, of one whose
// ticket was revoked, and of strangers who have seen neither key nor ticket, or
// changed a ticket.
func formerTickets(t *testing.T, tickets *gateway.Tickets) (ended, revoked shown, strangers map[string]shown) {
	t.Helper()
	issue := func(name string, life time.Duration) shown {
		user, password, err := tickets.Issue(gateway.Identity{Name: name, Cluster: "default/prod"}, life)
		if err != nil {
			t.Fatal(err)
		}
		return shown{user, password}
	}
	ended, revoked = issue("ann", time.Nanosecond), issue("bob", time.Hour)
	tickets.Revoked = func(t gateway.Ticket) bool { return t.Identity.Name == "bob" }
	var other gateway.Tickets
	user, password, err := other.Issue(gateway.Identity{Name: "ann", Cluster: "default/prod"}, time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte(ended.password)
	changed[len(changed)-1] ^= 'A' ^ 'B'
	return ended, revoked, map[string]shown{
		"nothing": {}, "a wrong password": {"ann", "x"}, "another key's ticket": {user, password},
		"another's ended ticket": {"eve", ended.password}, "another's revoked ticket": {"ann", revoked.password},
		"a changed ticket": {"ann", string(changed)},
	}
}

// Who shows a genuine ticket that is not valid any more is told what happened, by
// every door that has words; nobody else is told anything.
func TestFormerTickets(t *testing.T) {
	var tickets gateway.Tickets
	ended, revoked, strangers := formerTickets(t, &tickets)
	failed := make(chan string, 1000)
	g := &gateway.Gateway{Dial: dialEcho, Grace: -1, Hooks: gateway.Hooks{Failed: func(err error) { failed <- err.Error() }}}
	g.Authenticate = func(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
		id, err := tickets.Authenticate(ctx, c)
		if former, ok := err.(*gateway.TicketError); ok {
			former.Hint = "make a new one with: program " + former.Ticket.Identity.Cluster
		}
		return id, err
	}
	connect, _ := open(t, g, g.ServeConnect)
	socks, _ := open(t, g, g.ServeSOCKS5)
	year := time.Now().UTC().Format("2006-")
	for _, tt := range []struct {
		name   string
		ask    func(*testing.T, shown) string
		nobody string // what strangers are told
		ended  []string
		again  []string // if it was revoked
	}{
		{"HTTP/1", func(t *testing.T, s shown) string { return tellHTTP1(t, connect, s) }, "the credentials are missing or wrong",
			[]string{"407 Proxy Authentication Required: the ticket ended at " + year, " UTC; make a new one with: program default/prod\r\n"},
			[]string{"407 Proxy Authentication Required: the ticket was revoked; make a new one with: program default/prod\r\n"}},
		{"HTTP/2", func(t *testing.T, s shown) string { return tellHTTP2(t, connect, s) }, "the credentials are missing or wrong",
			[]string{`details="the ticket ended at ` + year, "Required: the ticket ended at " + year, "; make a new one with: program default/prod\n"},
			[]string{`details="the ticket was revoked`, "Required: the ticket was revoked; make a new one with: program default/prod\n"}},
		{"net/http, and so kubectl", func(t *testing.T, s shown) string { return tellClient(t, connect, s) }, "the credentials are missing or wrong",
			[]string{"the ticket ended at " + year, " UTC; make a new one with: program default/prod"}, []string{"the ticket was revoked; make a new one with: program"}},
		{"SOCKS5", func(t *testing.T, s shown) string { return tellSOCKS5(t, socks, s) }, "\x05\x02\x01\x01", []string{"\x05\x02\x01\x02"}, []string{"\x05\x02\x01\x03"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, known := range []struct {
				shown shown
				want  []string
			}{{ended, tt.ended}, {revoked, tt.again}} {
				for len(failed) > 0 {
					<-failed
				}
				got := tt.ask(t, known.shown)
				if log := <-failed; !strings.Contains(log, "the ticket ") {
					t.Errorf("the hook is told %q, want the reason", log)
				}
				for _, want := range known.want {
					if !strings.Contains(got, want) {
						t.Errorf("%s is told %q, want %q", known.shown.user, got, want)
					}
				}
			}
			first := tt.ask(t, strangers["a wrong password"])
			if !strings.Contains(first, tt.nobody) {
				t.Errorf("a stranger is told %q, want %q", first, tt.nobody)
			}
			for name, s := range strangers {
				if got := tt.ask(t, s); got != first {
					t.Errorf("%s: got %q, want the same as any stranger", name, got)
				}
			}
		})
	}
}

func (s shown) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(s.user+":"+s.password))
}

func tellHTTP1(t *testing.T, addr string, s shown) string {
	conn := call(t, addr)
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nProxy-Authorization: %s\r\nConnection: close\r\n\r\n", targetA, s.basic())
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(got)
}

func tellHTTP2(t *testing.T, addr string, s shown) (told string) {
	conn := call(t, addr)
	f := sayHTTP2(conn, s.basic())
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, field := range frame.Fields {
				told += field.Name + ": " + field.Value + "\n"
			}
		case *http2.DataFrame:
			return told + string(frame.Data())
		}
	}
}

func tellClient(t *testing.T, addr string, s shown) string {
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr, User: url.UserPassword(s.user, s.password)})}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://kubernetes.default.svc/", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = transport.RoundTrip(request)
	return fmt.Sprint(err)
}

func tellSOCKS5(t *testing.T, addr string, s shown) string {
	var conn net.Conn = call(t, addr)
	if s.user == "" {
		s.user, s.password = "x", "y" // a client that shows none offers another method
	}
	send(t, conn, "\x05\x01\x02\x01"+string([]byte{byte(len(s.user))})+s.user+string([]byte{byte(len(s.password))})+s.password)
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(got)
}
