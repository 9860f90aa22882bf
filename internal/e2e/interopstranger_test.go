package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// otherCluster is one whose credentials are good, and lead to no other cluster.
const (
	otherCluster = "e2e/other"
	zone         = "clusters.example.com"
	prodTarget   = "kubernetes.default.svc.prod.e2e." + zone + ":443"
)

// strangers are clients that must reach nothing. They name the cluster in the
// target, so that nothing but who they are keeps them out.
var strangers = []struct {
	name string
	user *url.Userinfo
}{
	{"no credentials", nil},
	{"no password", url.User(cluster)},
	{"wrong password", url.UserPassword(cluster, "wrong")},
	{"another user", url.UserPassword("e2e/none", password)},
	{"another cluster's password", url.UserPassword(cluster, otherPassword)},
	{"another cluster's credentials", url.UserPassword(otherCluster, otherPassword)},
}

const otherPassword = "another"

// Whoever shows nothing, something wrong, or the credentials of another cluster
// reaches nothing: no door asks for a connection on their behalf.
func TestInteropStrangers(t *testing.T) {
	b := sharedBed(t)
	s := &strictDoors{t: t, b: b, h: gatewayTunnel(t, b)}
	for _, d := range s.open() {
		for _, stranger := range strangers {
			d.url.User = stranger.user
			if err := knock(t, b, d.url); err == nil {
				t.Errorf("%s, %s: it got in", d.name, stranger.name)
			} else {
				t.Logf("%s, %s: %v", d.name, stranger.name, err)
			}
		}
		if n := s.dialed.Swap(0); n != 0 {
			t.Errorf("%s: got %d dials for strangers, want none", d.name, n)
		}
		// Who may gets in, or the above would show nothing.
		d.url.User = url.UserPassword(cluster, password)
		if err := knock(t, b, d.url); err != nil || s.dialed.Swap(0) != 1 {
			t.Errorf("%s: with the right credentials: got %v, want one dial", d.name, err)
		}
	}
	address := s.openSNI()
	for name, knows := range map[string]bool{bed.SNIName: false, "other." + zone: true} {
		s.known.Store(knows)
		if err := knockTLS(t, b, address, name); err == nil || s.dialed.Load() != 0 {
			t.Errorf("SNI, %s, client known: %t: got %v after %d dials, want an error and none", name, knows, err, s.dialed.Load())
		} else {
			t.Logf("SNI, %s, client known: %t: %v", name, knows, err)
		}
	}
	s.known.Store(true)
	if err := knockTLS(t, b, address, bed.SNIName); err != nil || s.dialed.Load() != 1 {
		t.Errorf("SNI, with all in order: got %v, want one dial", err)
	}
}

// strictDoors are doors that let a client name its cluster.
type strictDoors struct {
	t      *testing.T
	b      *bed.Bed
	h      *hub
	dialed atomic.Int32
	known  atomic.Bool // whether the SNI door knows its client
}

func (s *strictDoors) gateway(config *tls.Config) *gateway.Gateway {
	g := s.h.gateway(config)
	g.Authenticate, g.Route = twoClusters, gateway.ByAuthority(zone)
	dial := g.Dial
	g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		s.dialed.Add(1)
		return dial(ctx, r)
	}
	return g
}

type strictDoor struct {
	name string
	url  *url.URL
}

func (s *strictDoors) open() []strictDoor {
	withTLS := &tls.Config{Certificates: []tls.Certificate{s.b.Kube.CA.Server("gateway", "127.0.0.1")}}
	connect, socks5 := (*gateway.Gateway).ServeConnect, (*gateway.Gateway).ServeSOCKS5
	socket := listenUnix(s.t, filepath.Join(s.b.Dir, "strict.sock"))
	return []strictDoor{
		{"CONNECT", s.h.serve(s.gateway(nil), connect, loopback(s.t, s.b), "http")},
		{"CONNECT, HTTP/2", s.h.serve(s.gateway(withTLS), connect, loopback(s.t, s.b), "https")},
		{"CONNECT, unix socket", s.h.serve(s.gateway(nil), connect, socket, "http+unix")},
		{"SOCKS5", s.h.serve(s.gateway(nil), socks5, loopback(s.t, s.b), "socks5h")},
	}
}

// openSNI returns the address of a door that has no credentials to ask for: the
// address of a client is what it knows.
func (s *strictDoors) openSNI() string {
	g := s.gateway(nil)
	g.Authenticate = func(context.Context, gateway.Credentials) (gateway.Identity, error) {
		if !s.known.Load() {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		return gateway.Identity{Name: "known", Cluster: cluster}, nil
	}
	names := new(gateway.Table)
	names.Set(map[string]gateway.Place{
		bed.SNIName:     {Cluster: cluster, Address: apiTarget},
		"other." + zone: {Cluster: otherCluster, Address: apiTarget},
	})
	g.Route = gateway.ByTable(names)
	return s.h.serve(g, (*gateway.Gateway).ServeSNI, loopback(s.t, s.b), "").Host
}

// twoClusters knows two clients, each of one cluster.
func twoClusters(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
	want, ok := map[string]string{cluster: password, otherCluster: otherPassword}[c.User]
	if !ok || c.Password != want {
		return gateway.Identity{}, gateway.ErrCredentials
	}
	return gateway.Identity{Name: c.User, Cluster: c.User}, nil
}

// knock dials the API server through a proxy in the hub's namespace, and goes
// on to its TLS: SOCKS5 may end what it let in.
func knock(t *testing.T, b *bed.Bed, proxy *url.URL) error {
	t.Helper()
	h2 := new(dialer.HTTP2)
	defer h2.Close()
	d, err := dialer.FromURL(proxy, &dialer.Options{
		Forward: dialer.Func(b.Network.Hub.DialContext), HTTP2: h2, TLSConfig: &tls.Config{RootCAs: b.Kube.CA.Pool()},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", prodTarget)
	if err != nil {
		return err
	}
	defer conn.Close()
	return tls.Client(conn, &tls.Config{RootCAs: b.Kube.CA.Pool(), ServerName: "kubernetes.default.svc"}).HandshakeContext(ctx)
}

func knockTLS(t *testing.T, b *bed.Bed, address, name string) error {
	t.Helper()
	conn, err := b.Network.Hub.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return tls.Client(conn, &tls.Config{RootCAs: b.Kube.CA.Pool(), ServerName: name}).HandshakeContext(t.Context())
}
