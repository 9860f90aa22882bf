package gateway_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

type errAway struct{ away bool }

func (errAway) Error() string       { return "the API server is away" }
func (e errAway) Unavailable() bool { return e.away }

// What several authenticators make of a client, by what each says of it, and what the
// client is told.
func TestFirstOf(t *testing.T) {
	other := errors.New("the account is locked")
	forbidden := fmt.Errorf("annie is known: %w", syscall.EACCES)
	away := fmt.Errorf("token review: %w", errAway{true})
	for _, tt := range []struct {
		name   string
		say    []error // of each, nil: let in
		asked  int
		status string
		is     []error
		text   string
	}{
		{"nobody is asked", nil, 0, "407", []error{gateway.ErrCredentials}, ""},
		{"the first", []error{nil, gateway.ErrCredentials}, 1, "200", nil, ""},
		{"the second", []error{gateway.ErrCredentials, nil}, 2, "200", nil, ""},
		{"after any error", []error{other, nil}, 2, "200", nil, ""},
		{"after one that can't tell", []error{away, nil}, 2, "200", nil, ""},
		{"none", []error{gateway.ErrCredentials, gateway.ErrCredentials}, 2, "407", []error{gateway.ErrCredentials}, gateway.ErrCredentials.Error()},
		{"none, with a reason", []error{other, gateway.ErrCredentials}, 2, "407", []error{other}, other.Error()},
		{"known and not let in", []error{forbidden, nil}, 1, "403", []error{syscall.EACCES}, forbidden.Error()},
		{"the second knows", []error{away, forbidden, nil}, 2, "403", []error{syscall.EACCES}, forbidden.Error()},
		{"one can't tell, the other says no", []error{away, gateway.ErrCredentials}, 2, "503", []error{errAway{true}}, away.Error()},
		{"one says no, the other can't tell", []error{other, away}, 2, "503", []error{other, errAway{true}}, other.Error() + "; " + away.Error()},
		{"unavailable for now is not what it says", []error{other, errAway{false}}, 2, "407", []error{other}, ""},
		{"one whose question was forbidden can't tell", []error{errors.Join(errAway{true}, syscall.EACCES), gateway.ErrCredentials}, 2, "503", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			all := []func(context.Context, gateway.Credentials) (gateway.Identity, error){nil}
			for n, err := range tt.say {
				all = append(all, func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
					if asked++; asked != n+1 || c.User != "annie" {
						t.Errorf("authenticator %d was asked about %q after %d", n+1, c.User, asked)
					}
					return gateway.Identity{Name: fmt.Sprint("annie of ", n+1)}, err
				})
			}
			first := gateway.FirstOf(all...)
			id, err := first(t.Context(), gateway.Credentials{User: "annie"})
			if asked != tt.asked || (err == nil) != (tt.status == "200") {
				t.Errorf("got %v after %d questions, want %d", err, asked, tt.asked)
			}
			if want := fmt.Sprint("annie of ", tt.asked); err == nil && id.Name != want || err != nil && id != (gateway.Identity{}) {
				t.Errorf("got %+v, %v, want %s or nobody", id, err, want)
			}
			for _, want := range tt.is {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want it to be %v", err, want)
				}
			}
			if tt.text != "" && err.Error() != tt.text {
				t.Errorf("got %q, want %q", err, tt.text)
			}
			asked = 0
			if got := connectStatus(t, first); got != tt.status {
				t.Errorf("the client was told %s, want %s", got, tt.status)
			}
		})
	}
}

// connectStatus returns the status that a raw client gets whose user is annie.
func connectStatus(t *testing.T, authenticate func(context.Context, gateway.Credentials) (gateway.Identity, error)) string {
	t.Helper()
	g := &gateway.Gateway{Authenticate: authenticate, Grace: -1, Dial: func(context.Context, gateway.Request) (net.Conn, error) {
		near, far := net.Pipe()
		far.Close()
		return near, nil
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- g.ServeConnect(ctx, l) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("CONNECT api:443 HTTP/1.1\r\nHost: api:443\r\nProxy-Authorization: Basic YW5uaWU6eA==\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 12)
	if _, err := conn.Read(line); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(string(line), "HTTP/1.1 ")
}

// Nobody else is asked about a client that has left.
func TestFirstOfContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first := gateway.FirstOf(
		func(context.Context, gateway.Credentials) (gateway.Identity, error) {
			cancel()
			return gateway.Identity{}, gateway.ErrCredentials
		},
		func(context.Context, gateway.Credentials) (gateway.Identity, error) {
			t.Error("the second one was asked")
			return gateway.Identity{}, nil
		})
	if _, err := first(ctx, gateway.Credentials{}); !errors.Is(err, gateway.ErrCredentials) {
		t.Errorf("got %v, want %v", err, gateway.ErrCredentials)
	}
}

// Clients have a ticket, or else a certificate.
func ExampleFirstOf() {
	var tickets gateway.Tickets
	byCertificate := func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if len(c.Certificates) == 0 {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		return gateway.Identity{Name: c.Certificates[0].Subject.CommonName, Cluster: "default/prod"}, nil
	}
	g := &gateway.Gateway{Authenticate: gateway.FirstOf(tickets.Authenticate, byCertificate)}

	annie := &x509.Certificate{Subject: pkix.Name{CommonName: "annie"}}
	id, err := g.Authenticate(context.Background(), gateway.Credentials{Certificates: []*x509.Certificate{annie}})
	fmt.Println(id.Name, id.Cluster, err)
	user, ticket, _ := tickets.Issue(gateway.Identity{Name: "bob", Cluster: "default/dev"}, 1e9)
	id, err = g.Authenticate(context.Background(), gateway.Credentials{User: user, Password: ticket})
	fmt.Println(id.Name, id.Cluster, err)
	_, err = g.Authenticate(context.Background(), gateway.Credentials{User: "annie", Password: "wrong"})
	fmt.Println(err)
	// Output:
	// annie default/prod <nil>
	// bob default/dev <nil>
	// gateway: the credentials are missing or wrong
}
