package tunnel_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/storetest"
	"github.com/causewayproject/causeway/tunnel"
)

// revokeCluster has the store say that all agents of the cluster were revoked, by the
// server's clock.
func (s *tunnelServer) revokeCluster(cluster string) {
	s.t.Helper()
	must(recordsOf(s.store).Revoke(s.t.Context(), tunnel.Identity{Cluster: cluster}, s.now().Truncate(time.Millisecond)))(s.t)
}

// TestRevokeCluster: what was made before it is refused everywhere, and what is made after
// it is not, whatever the clocks of the servers say.
func TestRevokeCluster(t *testing.T) {
	for _, clock := range []struct {
		name                   string
		before, revoked, after time.Duration // the clock of the server that is used then
	}{
		{"one clock", 0, 0, 0},
		{"a slow server revokes", 10 * time.Minute, 0, 0},
		{"a slow server invites later", 0, 10 * time.Minute, 0},
	} {
		t.Run(clock.name, func(t *testing.T) {
			s := newTunnelServer(t, &tunnel.MemoryStore{})
			s.setAhead(clock.before)
			inv, key := must(s.registrar.InviteAgents(t.Context(), "prod", 3, 24*time.Hour))(t), newKey(t)
			old, id, err, _ := s.enroll(inv, key)
			if err != nil {
				t.Fatal(err)
			}
			renewed := must(s.renew(old))(t)
			other := s.enrolled("staging")
			s.setAhead(clock.revoked)
			s.revokeCluster("prod")
			s.setAhead(clock.after)
			for name, c := range map[string]*tunnel.Credentials{"enrolled": old, "renewed": renewed} {
				if _, err := s.connect(c); codeIn(err) != tunnel.CodeRevoked || !strings.Contains(err.Error(), "all agents of the cluster") {
					t.Errorf("%s: got %v, want %v", name, err, tunnel.CodeRevoked)
				}
				if _, err := s.renew(c); codeIn(err) != tunnel.CodeRevoked {
					t.Errorf("%s renews: got %v, want %v", name, err, tunnel.CodeRevoked)
				}
			}
			for range 2 { // from the store, and from memory
				if _, _, err, _ := s.enroll(inv, key); codeIn(err) != tunnel.CodeTokenUnknown || !strings.Contains(err.Error(), "were revoked after it was made") {
					t.Errorf("the same key enrols again: got %v, want %v", err, tunnel.CodeTokenUnknown)
				}
				if _, _, err, _ := s.enroll(inv, newKey(t)); codeIn(err) != tunnel.CodeTokenUnknown {
					t.Errorf("another key enrols: got %v, want %v", err, tunnel.CodeTokenUnknown)
				}
			}
			if _, err := s.connect(other); err != nil {
				t.Errorf("another cluster's agent: got %v", err)
			}
			// The same key is a new agent's, since its name was not revoked.
			next, again, err, hookErr := s.enroll(s.invite("prod"), key)
			if err := errors.Join(err, hookErr); err != nil || again != id {
				t.Fatalf("a later invitation: got %v, %v", again, err)
			}
			for range 2 {
				if _, err := s.connect(next); err != nil {
					t.Errorf("after the later invitation: got %v", err)
				}
				next = must(s.renew(next))(t)
			}
			s.revokeCluster("prod")
			if _, err := s.connect(next); codeIn(err) != tunnel.CodeRevoked {
				t.Errorf("revoked again: got %v, want %v", err, tunnel.CodeRevoked)
			}
		})
	}
}

// TestRevokeClusterFormer: certificates that do not say when they were made, of servers
// that could not revoke clusters.
func TestRevokeClusterFormer(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	a, key := s.authority.Load(), newKey(t)
	random := new(big.Int).Lsh(big.NewInt(0x4357), 18*8) // as long as random ones are
	former := &tunnel.Credentials{Key: key, Roots: []*x509.Certificate{a.Certificate},
		Chain: []*x509.Certificate{leaf(t, a, key, func(c *x509.Certificate) { c.SerialNumber = random })}}
	if _, err := s.connect(former); err != nil {
		t.Fatal(err)
	}
	former = must(s.renew(former))(t)
	s.revokeCluster("prod")
	if _, err := s.connect(former); codeIn(err) != tunnel.CodeRevoked {
		t.Errorf("got %v, want %v", err, tunnel.CodeRevoked)
	}
}

// TestSerial: the serial number keeps its time, and is one that certificates may have.
func TestSerial(t *testing.T) {
	for _, at := range []time.Time{{}, time.UnixMilli(1).UTC(), time.Now().UTC().Truncate(time.Millisecond), time.UnixMilli(1<<48 - 1).UTC()} {
		serial := tunnel.AgentSerial(at)
		if n := len(serial.Bytes()); serial.Sign() <= 0 || n > 20 {
			t.Errorf("%v: got a serial number of %d bytes", at, n)
		}
		if got := tunnel.MadeAfter(&x509.Certificate{SerialNumber: serial}); !got.Equal(at) {
			t.Errorf("got %v, want %v", got, at)
		}
		if tunnel.AgentSerial(at).Cmp(serial) == 0 {
			t.Errorf("%v: got the same serial number twice", at)
		}
	}
}

// TestRevokeClusterRenewing: agents renew, enrol and connect as fast as they can while the
// cluster is revoked. None of what they got, then or before, is accepted afterwards.
func TestRevokeClusterRenewing(t *testing.T) {
	s := newTunnelServer(t, tunnel.DirStore{Dir: t.TempDir()})
	inv := must(s.registrar.InviteAgents(t.Context(), "prod", 1000, 0))(t)
	var revoked atomic.Bool
	var mu sync.Mutex
	var got []*tunnel.Credentials
	keep := func(c *tunnel.Credentials) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, c)
	}
	var agents sync.WaitGroup
	rounds := make(chan struct{}, 1000)
	for range 3 {
		c := s.enrolled("prod")
		agents.Go(func() {
			for last := false; !last; rounds <- struct{}{} {
				last = revoked.Load()
				if next, err := s.renew(c); err == nil {
					c = next
					keep(c)
				}
			}
		})
		agents.Go(func() {
			for last := false; !last; rounds <- struct{}{} {
				last = revoked.Load()
				if c, _, err, _ := s.enroll(inv, newKey(t)); err == nil {
					keep(c)
				}
			}
		})
	}
	for range 30 {
		<-rounds
	}
	s.revokeCluster("prod")
	revoked.Store(true)
	agents.Wait()
	t.Logf("%d certificates", len(got))
	for _, c := range got {
		if _, err := s.connect(c); codeIn(err) != tunnel.CodeRevoked {
			t.Errorf("got %v, want %v", err, tunnel.CodeRevoked)
		}
	}
	if _, err := s.connect(s.enrolled("prod")); err != nil {
		t.Errorf("a later invitation: got %v", err)
	}
}

// TestRevokeClusterSessions: sessions and streams of all its agents end at once, at one that
// was away as soon as it is back, and no others. A later invitation lets an agent in
// without a restart.
func TestRevokeClusterSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		store := &tunnel.MemoryStore{}
		for _, name := range []string{"a", "b"} {
			r.beds[name].s.Close()
			r.serve(&tunnel.Server{Name: name, Store: store})
		}
		r.mesh()
		r.serve(&tunnel.Server{Name: "c", Store: store, Peers: &members{}}) // it dials nobody
		a, b, c := r.beds["a"], r.beds["b"], r.beds["c"]
		other := must(a.s.Invite(t.Context(), "default/staging", 0))(t)
		stays := r.at("a", &tunnel.Agent{Invitation: func(context.Context) (tunnel.Invitation, error) { return other, nil }})
		var inv atomic.Pointer[tunnel.Invitation]
		first := must(a.s.InviteAgents(t.Context(), testCluster, 4, 0))(t)
		inv.Store(&first)
		agent := func() *tunnel.Agent {
			return &tunnel.Agent{Invitation: func(context.Context) (tunnel.Invitation, error) { return *inv.Load(), nil }}
		}
		r.at("a", agent())
		r.at("a", agent())
		r.at("b", agent())
		away := r.at("c", agent())
		busy := a.echo()
		if err := a.s.RevokeCluster(t.Context(), testCluster); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(a.sessions()) + len(b.sessions()); n != 0 {
			t.Errorf("got %d sessions, want none", n)
		}
		if _, err := io.ReadAll(busy); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a stream ended with %v, want %v", err, syscall.ECONNRESET)
		}
		if !stays.Status().Connected {
			t.Error("an agent of another cluster was cut off")
		}
		if !away.Status().Connected {
			t.Error("the other replica heard of it while it was away")
		}
		r.members.set("a:1", "b:1", "c:1")
		synctest.Wait()
		if n := len(c.sessions()); n != 0 {
			t.Errorf("got %d sessions at the replica that is back, want none", n)
		}
		second := must(b.s.InviteAgents(t.Context(), testCluster, 4, 0))(t)
		inv.Store(&second)
		for _, bed := range []*bed{a, a, b, c} {
			bed.await()
		}
		b.echo().Close()
	})
}

// TestRevokeClusterRestart: the store keeps it, for servers that start later.
func TestRevokeClusterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := newBed(t, &tunnel.Server{Store: tunnel.DirStore{Dir: dir}})
		credentials := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: credentials}).stop()
		if err := b.s.RevokeCluster(t.Context(), testCluster); err != nil {
			t.Fatal(err)
		}
		b.s.Close()
		refused := make(chan error, 1000)
		again := newBedAt(t, &tunnel.Server{Authority: b.s.Authority, Store: tunnel.DirStore{Dir: dir}, Hooks: tunnel.Hooks{Refused: refusals(refused)}}, b.w, wireAddress)
		later := again.invite()
		var known atomic.Bool
		again.start(&tunnel.Agent{Credentials: credentials, Invitation: func(context.Context) (tunnel.Invitation, error) {
			if !known.Load() {
				return tunnel.Invitation{}, errors.New("none yet")
			}
			return later, nil
		}})
		if err := <-refused; codeOf(err) != tunnel.CodeRevoked {
			t.Errorf("got %v, want %v", err, tunnel.CodeRevoked)
		}
		known.Store(true)
		again.await()
	})
}

// TestRevokeNobody: an empty name is a mistake, and revokes nobody.
func TestRevokeNobody(t *testing.T) {
	store := &tunnel.MemoryStore{}
	s := &tunnel.Server{Authority: newAuthority(t), Store: store}
	if err := s.Revoke(t.Context(), tunnel.Identity{Cluster: "prod"}); codeIn(err) != tunnel.CodeConfig || !strings.Contains(err.Error(), "RevokeCluster") {
		t.Errorf("got %v, want %v", err, tunnel.CodeConfig)
	}
	if err := s.RevokeCluster(t.Context(), ""); codeIn(err) != tunnel.CodeConfig {
		t.Errorf("got %v, want %v", err, tunnel.CodeConfig)
	}
	if at := must(recordsOf(store).Revoked(t.Context(), tunnel.Identity{Cluster: "prod"}))(t); !at.IsZero() {
		t.Errorf("the cluster was revoked at %v", at)
	}
}

// TestRevokeClusterOften: tokens that a revocation has made void don't pile up.
func TestRevokeClusterOften(t *testing.T) {
	store := &tunnel.MemoryStore{}
	s := &tunnel.Server{Authority: newAuthority(t), Store: store}
	defer s.Close()
	must(s.InviteAgents(t.Context(), "staging", 1, time.Hour))(t)
	for range 20 {
		must(s.InviteAgents(t.Context(), "prod", 1, time.Hour))(t)
		if err := s.RevokeCluster(t.Context(), "prod"); err != nil {
			t.Fatal(err)
		}
	}
	if got := must(recordsOf(store).Tokens(t.Context(), "prod"))(t); len(got) > 2 {
		t.Errorf("got %d tokens, want 2 at most", len(got))
	}
	if got := must(s.Invitations(t.Context(), "staging"))(t); len(got) != 1 {
		t.Errorf("got %v, want the other cluster's invitation", got)
	}
}

// TestEndCluster: nothing of a cluster that is gone stays for good, and its revocation
// stays as long as anything is valid that it refuses.
func TestEndCluster(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name string
		ends *tunnel.Server // the one that ends the cluster
		keep time.Duration
		asks *tunnel.Server // the one that is asked later
		days int            // that it is kept
	}{
		{"by default", &tunnel.Server{}, 0, &tunnel.Server{}, 8},
		{"short certificates", &tunnel.Server{CertificateLife: time.Hour}, 2 * day, &tunnel.Server{CertificateLife: time.Hour}, 3},
		{"long tickets", &tunnel.Server{}, 30 * day, &tunnel.Server{}, 31},
		{"long certificates", &tunnel.Server{CertificateLife: 20 * day}, day, &tunnel.Server{}, 21},
		{"of the other server", &tunnel.Server{}, 0, &tunnel.Server{CertificateLife: 20 * day}, 21},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, a := &tunnel.MemoryStore{}, newAuthority(t)
				ends, asks := tt.ends, tt.asks
				for _, s := range []*tunnel.Server{ends, asks} {
					s.Authority, s.Store = a, store
					defer s.Close()
				}
				must(ends.InviteAgents(t.Context(), "prod", 3, day))(t)
				if err := ends.EndCluster(t.Context(), "prod", tt.keep); err != nil {
					t.Fatal(err)
				}
				if err := ends.RevokeCluster(t.Context(), "by-hand"); err != nil {
					t.Fatal(err)
				}
				if got := must(recordsOf(store).Tokens(t.Context(), "prod"))(t); len(got) > 0 {
					t.Errorf("got the tokens %v, want none", got)
				}
				time.Sleep(time.Duration(tt.days)*day - time.Second)
				if got := must(asks.EndedClusters(t.Context()))(t); !slices.Equal(got, []string{"prod"}) {
					t.Errorf("on the last day: got %v, want prod", got)
				}
				void := storetest.Token(0, time.Now()) // by a server that has not learnt of the end
				void.Cluster = "prod"
				if err := recordsOf(store).AddToken(t.Context(), void); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				must(asks.EndedClusters(t.Context()))(t)
				if got := must(asks.Invitations(t.Context(), "prod"))(t); len(got) > 0 {
					t.Errorf("got %v, want that the former invitation is void", got)
				}
				for cluster, want := range map[string]bool{"prod": false, "by-hand": true} {
					if at := must(recordsOf(store).Revoked(t.Context(), tunnel.Identity{Cluster: cluster}))(t); at.IsZero() == want {
						t.Errorf("%s was revoked at %v; want it kept: %t", cluster, at, want)
					}
				}
			})
		})
	}
}

// TestFollowStore: what another server of the store revokes ends sessions here. A cluster of
// the same name that is made once all of that is forgotten is a new one.
func TestFollowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tunnel.MemoryStore{}
		b := newBed(t, &tunnel.Server{Store: store})
		other := &tunnel.Server{Authority: b.s.Authority, Store: store}
		defer other.Close()
		follow := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			go b.s.FollowStore(ctx)
			return cancel
		}
		stop := follow()
		former := b.agent(&tunnel.Agent{})
		if err := other.EndCluster(t.Context(), testCluster, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := len(b.sessions()); n != 0 {
			t.Errorf("got %d sessions, want none", n)
		}
		if b.s.LastRevoked(testCluster).IsZero() {
			t.Error("the revocation is not known")
		}
		former.stop()
		stop() // it looks each second
		time.Sleep(9 * 24 * time.Hour)
		defer follow()()
		time.Sleep(time.Second)
		if got := must(other.EndedClusters(t.Context()))(t); len(got) > 0 {
			t.Errorf("got %v, want that it is forgotten", got)
		}
		time.Sleep(time.Second)
		b.agent(&tunnel.Agent{})
		b.echo().Close()
	})
}
