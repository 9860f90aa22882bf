package tunnel_test

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// Who may be a peer: a server of the same authority, for both usages, and
// nobody else.
func TestPeerCertificate(t *testing.T) {
	server := &url.URL{Scheme: "causeway", Host: "server"}
	agent := tunnel.Identity{Cluster: testCluster, Agent: "x"}.URI()
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, tt := range []struct {
		name   string
		other  bool // it is of another authority
		uris   []*url.URL
		usages []x509.ExtKeyUsage
		past   bool
		code   uint64
	}{
		{"a server", false, []*url.URL{server}, both, false, 0},
		{"of another authority", true, []*url.URL{server}, both, false, 35},
		{"an agent", false, []*url.URL{agent}, both[1:], false, 35},
		{"an agent with both usages", false, []*url.URL{agent}, both, false, 35},
		{"both", false, []*url.URL{server, agent}, both, false, 35},
		{"a server that is no client", false, []*url.URL{server}, both[:1], false, 35},
		{"a client that is no server", false, []*url.URL{server}, both[1:], false, 35},
		{"expired", false, []*url.URL{server}, both, true, 35},
		{"no name", false, nil, both, false, 35},
		{"none", false, nil, nil, false, 35},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{Name: "a"})
				issuer := b.s.Authority
				if tt.other {
					issuer = newAuthority(t)
				}
				key := newKey(t)
				chain := []*x509.Certificate{leaf(t, issuer, key, func(c *x509.Certificate) {
					c.URIs, c.ExtKeyUsage = tt.uris, tt.usages
					if tt.past {
						c.NotAfter = time.Now().Add(-time.Second)
					}
				})}
				if tt.usages == nil {
					chain = nil
				}
				session := b.rawPeer(&tunnel.Credentials{Key: key, Chain: chain})
				control, err := session.Open(t.Context(), rawPeerHello("b"))
				if err != nil {
					t.Fatal(err)
				}
				control.SetReadDeadline(time.Now().Add(time.Minute))
				kind, code, servers, err := readServers(control)
				want := uint16(2)
				if tt.code != 0 {
					want = 3
				}
				if kind != want || code != tt.code || err != nil {
					t.Errorf("got kind %d, code %d, %v, want code %d", kind, code, err, tt.code)
				}
				if kind == 2 && (len(servers) != 1 || servers[0] != "a") {
					t.Errorf("got the servers %q, want its name", servers)
				}
			})
		})
	}
}

// rawPeer is a session of a replica that misbehaves; it ends with the test.
func (b *bed) rawPeer(c *tunnel.Credentials) *mux.Session {
	b.t.Helper()
	wire := b.wire()
	carrier, err := tunnel.RawPeerCarrier(b.t.Context(), wire, c)
	if err != nil {
		b.t.Fatal(err)
	}
	session := mux.Client(carrier, nil)
	b.t.Cleanup(func() {
		wire.Close()
		session.Close()
	})
	return session
}

// A server's certificate, which is for clients too, is no agent's.
func TestServerIsNoAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		c, err := tunnel.ServerCredentials(b.s.Authority)
		if err != nil {
			t.Fatal(err)
		}
		_, session := b.rawSession(c)
		control, err := session.Open(t.Context(), rawHello())
		if err != nil {
			t.Fatal(err)
		}
		if kind, code, err := readRaw(control); kind != 3 || code != 35 || err != nil {
			t.Errorf("got %d, %d, %v, want a refusal", kind, code, err)
		}
	})
}

// A replica does not take for a peer who has no server's certificate, and says
// nothing to it.
func TestPeerIsChecked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		other  bool
		usages []x509.ExtKeyUsage
		code   tunnel.Code
	}{
		{"a server", false, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, 0},
		{"of another authority", true, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, tunnel.CodeServerCertificate},
		{"one that is no client", false, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, tunnel.CodeServerCertificate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAuthority(t)
			issuer := a
			if tt.other {
				issuer = newAuthority(t)
			}
			key := newKey(t)
			cert := leaf(t, issuer, key, func(c *x509.Certificate) {
				c.URIs, c.ExtKeyUsage = []*url.URL{{Scheme: "causeway", Host: "server"}}, tt.usages
			})
			near, far := net.Pipe()
			t.Cleanup(func() {
				near.Close()
				far.Close()
			})
			err := tunnel.PeerHandshake(testContext(t), a, near, far, key, cert)
			if codeIn(err) != tt.code {
				t.Errorf("got %v, want code %d", err, tt.code)
			}
		})
	}
}

// Who reads of a replica that is none reads where it is.
func TestStrangersAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		r.serve(&tunnel.Server{Name: "b", Authority: newAuthority(t), Peers: &members{}})
		failed := make(chan string, 100)
		a := r.serve(&tunnel.Server{Name: "a", Peers: &members{all: []string{"b:1"}}, Hooks: tunnel.Hooks{
			PeerFailed: func(address string, err error) { failed <- address + ": " + err.Error() },
		}})
		synctest.Wait()
		want := "tunnel: connect b:1: the server's certificate is not trusted: x509: "
		if got := <-failed; !strings.HasPrefix(got, "b:1: "+want) {
			t.Errorf("got %q from PeerFailed, want %q", got, want)
		}
		if got := a.s.Fleet(t.Context())[1]; got.Connected || !strings.HasPrefix(got.LastError, want) {
			t.Errorf("got %+v, want %q and the cause", got, want)
		}
	})
}

// The sessions of peers are replaced before their certificates end, and no dial
// notices.
func TestPeerSessionsRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := tunnel.KeepAlive{ProbeAfter: -1, DeadAfter: -1} // or the days are long
		var events []string
		r := newReplicas(t)
		a := r.serve(&tunnel.Server{Name: "a", KeepAlive: never, Peers: &members{all: []string{"b:1"}}, Hooks: tunnel.Hooks{
			PeerConnected:    func(string) { events = append(events, "connected") },
			PeerDisconnected: func(_ string, err error) { events = append(events, fmt.Sprint(err)) },
		}})
		r.serve(&tunnel.Server{Name: "b", KeepAlive: never, Peers: &members{all: []string{"a:1"}}})
		r.mesh()
		r.at("b", &tunnel.Agent{KeepAlive: never, FirstBackoff: 100 * time.Hour, MaxBackoff: 100 * time.Hour}) // it looks for no other server
		first := row(a.s, "b").Since
		busy := a.echo()
		for range 45 {
			time.Sleep(2 * time.Hour)
			a.echo().Close()
		}
		if since := row(a.s, "b").Since; !since.After(first) {
			t.Errorf("got the session of %v still, want another", since)
		}
		checkEcho(t, busy)
		busy.Close()
		synctest.Wait()
		if want := []string{"connected", "connected", "<nil>"}; !slices.Equal(events, want) {
			t.Errorf("got %q, want %q", events, want)
		}
	})
}
