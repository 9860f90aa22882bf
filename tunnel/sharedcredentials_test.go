package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// sharedSecret is what agents share. It counts what was written with a certificate.
type sharedSecret struct {
	mu     sync.Mutex // guards the fields below
	saved  *tunnel.Credentials
	issued int
	broken error
}

// view is one agent's store.
func (s *sharedSecret) view() *sharedView { return &sharedView{secret: s} }

func (s *sharedSecret) get() (saved *tunnel.Credentials, issued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved, s.issued
}

type sharedView struct {
	secret *sharedSecret
	known  *tunnel.Credentials
}

func (v *sharedView) Load(context.Context) (*tunnel.Credentials, error) {
	v.secret.mu.Lock()
	defer v.secret.mu.Unlock()
	v.known = v.secret.saved
	if v.known == nil || v.secret.broken != nil {
		return nil, v.secret.broken
	}
	text, err := v.known.PEM() // as a Secret has it
	if err != nil {
		return nil, err
	}
	return tunnel.ParseCredentials(text)
}

func (v *sharedView) Save(_ context.Context, c *tunnel.Credentials) error {
	v.secret.mu.Lock()
	defer v.secret.mu.Unlock()
	if v.secret.saved != v.known {
		return fmt.Errorf("the secret: %w", tunnel.ErrCredentialsChanged)
	}
	if v.secret.broken != nil {
		return v.secret.broken
	}
	if len(c.Chain) > 0 && (v.known == nil || len(v.known.Chain) == 0 || !v.known.Chain[0].Equal(c.Chain[0])) {
		v.secret.issued++
	}
	v.secret.saved, v.known = c, c
	return nil
}

// shared starts agents on one secret, each with its replica's name.
func (b *bed) shared(secret *sharedSecret, inv tunnel.Invitation, names ...string) (all []*agent) {
	b.t.Helper()
	for _, name := range names {
		all = append(all, b.start(&tunnel.Agent{
			Replica: name, Credentials: secret.view(),
			Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil },
			Hooks: tunnel.AgentHooks{Failed: func(server string, err error, _ time.Duration) {
				b.t.Errorf("%s failed at %s: %v", name, server, err)
			}},
		}))
	}
	return all
}

// taking are the replicas with a session that takes streams, and their one agent.
func (b *bed) taking() (replicas map[string]int, agent string) {
	b.t.Helper()
	replicas = map[string]int{}
	for _, s := range b.sessions() {
		if s.Draining {
			continue
		}
		replicas[s.Replica]++
		if agent != "" && s.Agent != agent {
			b.t.Errorf("got agents %s and %s, want one", agent, s.Agent)
		}
		agent = s.Agent
	}
	return replicas, agent
}

// Agents that start at once enrol with one token as one agent, and renew its certificate
// together: one of them writes it, and all use it.
func TestSharedCredentials(t *testing.T) {
	for _, names := range [][]string{{"a", "b"}, {"a", "b", "c", "d", "e"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var renewed atomic.Int32
				b := newBed(t, &tunnel.Server{CertificateLife: time.Hour, Hooks: tunnel.Hooks{
					Renewed: func(tunnel.Identity, time.Time) { renewed.Add(1) },
				}})
				secret := new(sharedSecret)
				agents := b.shared(secret, b.invite(), names...)
				time.Sleep(time.Minute)
				synctest.Wait()
				replicas, first := b.taking()
				if _, issued := secret.get(); len(replicas) != len(names) || issued != 1 {
					t.Fatalf("got %v, and %d certificates in the secret", replicas, issued)
				}
				conns := map[string]bool{}
				for range names {
					conn := b.echo() // to the agent with the fewest streams
					defer conn.Close()
					for _, s := range b.sessions() {
						conns[s.Replica] = conns[s.Replica] || s.Streams > 0
					}
				}
				if len(conns) != len(names) {
					t.Errorf("got streams at %v", conns)
				}
				for round := 2; round < 8; round++ {
					time.Sleep(43 * time.Minute) // each renews after 40 to 42
					synctest.Wait()
					replicas, name := b.taking()
					saved, issued := secret.get()
					if name != first || len(replicas) != len(names) || issued != round {
						t.Errorf("got %v of agent %s, and %d certificates in the secret, want %d", replicas, name, issued, round)
					}
					for _, a := range agents {
						if got := a.Status().Expires; !got.Equal(saved.Chain[0].NotAfter) {
							t.Errorf("%s has a certificate until %v, and the secret until %v", a.Replica, got, saved.Chain[0].NotAfter)
						}
					}
					for replica, n := range replicas {
						if n != 1 {
							t.Errorf("got %d sessions of %s that take streams", n, replica)
						}
					}
				}
				if n := renewed.Load(); n != 6 { // the others find it
					t.Errorf("got %d renewals, want 6", n)
				}
			})
		})
	}
}

// One agent is silent while the others renew, and comes back with its old copy.
func TestSharedOldCopy(t *testing.T) {
	for name, away := range map[string]time.Duration{"that is valid": 50 * time.Minute, "that has ended": 5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
				secret := new(sharedSecret)
				inv := b.invite()
				old := b.shared(secret, inv, "old")[0]
				b.await()
				before, _ := secret.get()
				old.stop()
				b.shared(secret, inv, "new")
				time.Sleep(away)
				synctest.Wait()
				// Its Load is from before.
				copied := &sharedView{secret: secret, known: before}
				var loads atomic.Int32
				enrolled := make(chan tunnel.Identity, 10)
				a := b.start(&tunnel.Agent{
					Replica:     "old",
					Credentials: staleStore{copied, before, &loads},
					Invitation:  func(context.Context) (tunnel.Invitation, error) { return inv, nil },
					Hooks:       tunnel.AgentHooks{Enrolled: func(id tunnel.Identity, _ time.Time) { enrolled <- id }},
				})
				time.Sleep(45 * time.Minute)
				synctest.Wait()
				replicas, _ := b.taking()
				saved, _ := secret.get()
				if len(replicas) != 2 || !a.Status().Expires.Equal(saved.Chain[0].NotAfter) {
					t.Errorf("got %v, and a certificate until %v, want %v", replicas, a.Status().Expires, saved.Chain[0].NotAfter)
				}
				if len(enrolled) > 0 {
					t.Error("it has enrolled again")
				}
			})
		})
	}
}

// staleStore returns what there was before from its first Load.
type staleStore struct {
	*sharedView
	before *tunnel.Credentials
	loads  *atomic.Int32
}

func (s staleStore) Load(ctx context.Context) (*tunnel.Credentials, error) {
	if s.loads.Add(1) == 1 {
		return s.before, nil
	}
	return s.sharedView.Load(ctx)
}

// By the agents' clock each certificate ended an hour ago; by the server's, which decides,
// it has not.
func TestSharedClockIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tunnel.Server{CertificateLife: time.Hour}
		b := newBed(t, s)
		if err := s.SetClock(func() time.Time { return time.Now().Add(-2 * time.Hour) }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour) // the authority is older than the clocks differ
		secret, inv := new(sharedSecret), b.invite()
		for _, name := range []string{"a", "b", "c"} {
			b.start(&tunnel.Agent{
				Replica: name, Credentials: secret.view(),
				Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil },
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		_, first := b.taking()
		for range 20 {
			time.Sleep(17 * time.Minute)
			synctest.Wait()
			if replicas, agent := b.taking(); len(replicas) != 3 || agent != first {
				t.Errorf("got %v as agent %s, want three as %s", replicas, agent, first)
			}
		}
	})
}

// A revoked agent's processes all find the next invitation; the one that is faster
// enrols, and the others go on with its credentials.
func TestSharedEnrolAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		secret := new(sharedSecret)
		var inv atomic.Pointer[tunnel.Invitation]
		first := b.invite()
		inv.Store(&first)
		for _, name := range []string{"a", "b", "c"} {
			b.start(&tunnel.Agent{
				Replica: name, Credentials: secret.view(),
				Invitation: func(context.Context) (tunnel.Invitation, error) { return *inv.Load(), nil },
			})
		}
		for range 3 {
			b.await()
		}
		_, before := b.taking()
		if err := b.s.Revoke(t.Context(), tunnel.Identity{Cluster: testCluster, Agent: before}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, _ := b.taking(); len(got) != 0 {
			t.Fatalf("got %v after the revocation", got)
		}
		next := b.invite()
		inv.Store(&next)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got, after := b.taking(); len(got) != 3 || after == before {
			t.Errorf("got %v as agent %s", got, after)
		}
	})
}

// Credentials that others share are not those of another cluster.
func TestSharedOtherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		secret := new(sharedSecret)
		b.shared(secret, b.invite(), "a")
		b.await()
		before, _ := secret.get()
		inv, err := b.s.Invite(t.Context(), "default/other", 0)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1000)
		b.start(&tunnel.Agent{
			Replica: "b", Credentials: secret.view(),
			Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil },
			Hooks:      tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) { failed <- err }},
		})
		for range 3 {
			var err error
			select {
			case err = <-failed:
			case <-time.After(10 * time.Minute):
				t.Fatal("it has not failed")
			}
			if codeOf(err) != tunnel.CodeWrongCluster || !strings.Contains(err.Error(), "are of the cluster "+testCluster+": only agents of one cluster can share them; give this agent another store") {
				t.Errorf("got %v", err)
			}
		}
		if got, _ := secret.get(); got != before {
			t.Error("the other cluster's credentials are gone")
		}
	})
}

// A store that fails for any other reason, or always has something else, is a failure.
func TestSharedStoreFails(t *testing.T) {
	for name, broken := range map[string]error{"fault": errors.New("no space"), "never the same": tunnel.ErrCredentialsChanged} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				failed := make(chan error, 1000)
				b.start(&tunnel.Agent{
					Replica: "a", Credentials: failingSave{broken},
					Hooks: tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) { failed <- err }},
				})
				if err := <-failed; codeOf(err) != tunnel.CodeInternal || !errors.Is(err, broken) || !strings.Contains(err.Error(), "saving the credentials: ") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

type failingSave struct{ error }

func (failingSave) Load(context.Context) (*tunnel.Credentials, error) { return nil, nil }

func (s failingSave) Save(context.Context, *tunnel.Credentials) error { return s.error }

// A session replaces an older one of the same replica, and no other; what one replica
// renews lets no session of another live longer.
func TestReplicaSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		secret := new(sharedSecret)
		inv := b.invite()
		b.shared(secret, inv, "a")
		b.await()
		saved, _ := secret.get()
		_, other := b.hello(saved, "b") // which never renews
		defer other.Close()
		if got, _ := b.taking(); got["a"] != 1 || got["b"] != 1 {
			t.Fatalf("got %v, want a and b", got)
		}
		// A second process of the same name.
		b.shared(secret, inv, "a")
		b.await()
		synctest.Wait()
		if got, _ := b.taking(); got["a"] != 1 || got["b"] != 1 {
			t.Errorf("got %v, want a and b once each", got)
		}
		time.Sleep(50 * time.Minute) // a has renewed
		synctest.Wait()
		for _, s := range b.sessions() {
			if own := s.Expires.Equal(saved.Chain[0].NotAfter); !s.Draining && own != (s.Replica == "b") {
				t.Errorf("got %+v", s)
			}
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if got, _ := b.taking(); got["a"] != 1 || got["b"] != 0 {
			t.Errorf("got %v after the end of b's certificate", got)
		}
	})
}

// Who has the certificate has a bounded number of sessions, whatever names it shows.
func TestReplicaLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		secret := new(sharedSecret)
		first := b.shared(secret, b.invite(), "a")[0]
		b.await()
		first.stop()
		saved, _ := secret.get()
		open := func(name string) (*wire.Message, *mux.Session) { return b.hello(saved, name) }
		for n := range 100 {
			if answer, m := open("one"); answer.Kind != wire.MsgWelcome {
				t.Fatalf("%d: got %v", n, answer)
			} else {
				defer m.Close()
			}
		}
		synctest.Wait()
		if got := len(b.sessions()); got != 64 {
			t.Errorf("got %d sessions of one replica, want 64", got)
		}
		for n := range 1100 {
			_, m := open(fmt.Sprint("name-", n))
			defer m.Close()
		}
		synctest.Wait()
		sessions := b.sessions()
		if len(sessions) != 1024 || sessions[len(sessions)-1].Replica != "name-1099" || sessions[0].Replica != "name-76" {
			t.Errorf("got %d sessions, from %s to %s", len(sessions), sessions[0].Replica, sessions[len(sessions)-1].Replica)
		}
		for _, name := range []string{strings.Repeat("n", 64), "a b", "a|b", "a\x00", "a\u3164", "\xff"} {
			answer, m := open(name)
			m.Close()
			if answer.Kind != wire.MsgRefusal || tunnel.Code(answer.Uint(wire.TagCode)) != tunnel.CodeBadRequest || !strings.HasPrefix(answer.Text(wire.TagText), "HELLO: the name of the agent's replica ") {
				t.Errorf("%q: got %v %q", name, answer.Kind, answer.Text(wire.TagText))
			}
			a := &tunnel.Agent{Replica: name, Credentials: secret.view()}
			if err := a.Run(t.Context()); codeOf(err) != tunnel.CodeConfig || !strings.Contains(err.Error(), "field Replica of the Agent: the name of the agent's replica ") {
				t.Errorf("%q: got %v", name, err)
			}
		}
	})
}

// hello opens a session as a replica of the agent, and returns the answer.
func (b *bed) hello(c *tunnel.Credentials, replica string) (*wire.Message, *mux.Session) {
	b.t.Helper()
	_, m := b.rawSession(c)
	hello := wire.New(wire.MsgHello).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagName, replica)
	control, err := m.Open(b.t.Context(), hello.Encode())
	if err != nil {
		b.t.Fatal(err)
	}
	answer, err := wire.Read(control, wire.MaxBody)
	if err != nil {
		b.t.Fatal(err)
	}
	if answer.Kind == wire.MsgWelcome {
		b.await()
	}
	return answer, m
}
