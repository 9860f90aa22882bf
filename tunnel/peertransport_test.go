package tunnel_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel"
)

// The password of a replica's wss address is in no text.
func TestPeerPassword(t *testing.T) {
	a := newBed(t, &tunnel.Server{Name: "a"})
	outer := pki.ClientTLS()
	outer.Certificates = pki.ServerTLS().Certificates
	l := tunnel.ListenWebSocket(listen(t), outer)
	a.serveAlso(l)
	peers := &members{}
	peers.set("wss://ann:hidden@" + l.Addr().String() + "/peers")
	c := newBed(t, &tunnel.Server{Name: "c", Authority: a.s.Authority, Peers: peers})
	_, err := c.dial("echo:7")
	checkNoAgent(t, err, "the replica at wss://ann:xxxxx@"+l.Addr().String()+"/peers can't be asked: ", "outer TLS handshake: tls: failed to verify certificate: x509: ")
	if got := c.s.Fleet(t.Context())[1]; strings.Contains(got.Address+got.LastError, "hidden") {
		t.Errorf("got %+v with the password", got)
	}
}

// checkNoAgent checks that an error is of a missing agent, in any respect, and
// says why there may be one yet.
func checkNoAgent(t testing.TB, err error, texts ...string) {
	t.Helper()
	var e *tunnel.Error
	if !errors.As(err, &e) || e.Code != tunnel.CodeNoAgent || !e.Unavailable() {
		t.Errorf("got %v, want no agent", err)
		return
	}
	for _, code := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EACCES, net.ErrClosed, context.Canceled} {
		if errors.Is(err, code) {
			t.Errorf("got %v, which is %v too", err, code)
		}
	}
	for _, text := range append(texts, "no agent is connected: ") {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %q, want %q in it", err, text)
		}
	}
	if n := utf8.RuneCountInString(err.Error()); e.Timeout() || n > 1000 || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q of %d characters, timeout %t, want neither a timeout, a password nor a long text", err, n, e.Timeout())
	}
}

// A dial that finds no agent says which replicas could not be asked, and what
// is wrong.
func TestNoAgentSaysWhyPeersAreMissing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		peers []string
		want  string
	}{
		{"a name without a port", []string{"replica-b"}, "the replica at replica-b can't be asked: the server's address is neither host:port nor a ws or wss URL: "},
		{"a scheme", []string{"https://ann:hidden@b:1/"}, "the replica at https://ann:xxxxx@b:1/ can't be asked: the scheme of the server's address is neither ws nor wss"},
		{"no URL", []string{"wss://ann:hidden\n@b:1/"}, "the replica at (not a URL) can't be asked: the server's address is not a URL"},
		{"the same name", []string{"twin:1"}, `the replica at twin:1 can't be asked: field Name of the Server: the replica at twin:1 has the name "a" too`},
		{"another authority", []string{"stranger:1"}, "the replica at stranger:1 can't be asked: the server's certificate is not trusted: x509: "},
		{"nobody there", []string{"gone:1"}, "the replica at gone:1 can't be asked: no session: connection refused"},
		{"one does not come", []string{"slow:1"}, "1 of the other replicas did not answer"},
		{"it has not come", []string{"slow:1", "gone:1"}, "the replica at gone:1 can't be asked: no session: connection refused; 1 of the other replicas did not answer"},
		{"several", []string{"gone:1", "gone:2", "stranger:1", "b:1"}, "3 of the other replicas can't be asked (at stranger:1: the server's certificate is not trusted: "},
		{"a long story", []string{"long:1", "long:2", strings.Repeat("x", 10000)}, "3 of the other replicas can't be asked (at xxx"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t)
				r.serve(&tunnel.Server{Name: "b", Peers: &members{}})
				newBedAt(t, &tunnel.Server{Name: "a", Authority: r.Authority}, r.w, "twin:1")
				newBedAt(t, &tunnel.Server{Authority: newAuthority(t)}, r.w, "stranger:1")
				a := newBedAt(t, &tunnel.Server{Name: "a", Authority: r.Authority, Peers: &members{all: tt.peers},
					PeerDial: func(ctx context.Context, _, address string) (net.Conn, error) {
						switch {
						case address == "slow:1":
							<-ctx.Done()
							return nil, ctx.Err()
						case strings.HasPrefix(address, "long:"):
							return nil, errors.New(strings.Repeat("long\n", 1000))
						}
						return r.w.Dial(ctx, "tcp", address)
					}}, r.w, "a:1")
				_, err := a.dial("echo:7")
				checkNoAgent(t, err, tt.want)
				time.Sleep(time.Minute) // nobody is new any more, and all are tried again
				synctest.Wait()
				if _, err = a.dial("echo:7"); tt.name != "one does not come" && tt.name != "it has not come" {
					checkNoAgent(t, err, tt.want)
				} else {
					checkNoAgent(t, err, "can't be asked")
				}
			})
		})
	}
}

// All replicas were asked, or there are none: there is nothing to add.
func TestNoAgentWithoutExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		alone := newBedAt(t, &tunnel.Server{}, r.w, "alone:1")
		for _, b := range []*bed{r.beds["a"], alone} {
			_, err := b.dial("echo:7")
			if want := "tunnel: dial default/prod echo:7: no agent is connected"; err == nil || err.Error() != want {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	})
}
