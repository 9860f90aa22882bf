package tunnel_test

import (
	"context"
	"crypto/x509"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// clock is a replica's; the agents' is time.Now.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// serveSkewed serves a replica that begins when its clock is off.
func (r *replicas) serveSkewed(name string, peers tunnel.Membership, ahead time.Duration) *clock {
	r.t.Helper()
	c := &clock{}
	c.ahead.Store(int64(ahead))
	s := &tunnel.Server{Name: name, Authority: r.Authority, Store: r.store(), Peers: peers}
	if err := s.SetClock(c.now); err != nil {
		r.t.Fatal(err)
	}
	r.serve(s)
	return c
}

// store is the one of all replicas.
func (r *replicas) store() tunnel.Store {
	for _, b := range r.beds {
		return b.s.Store
	}
	return &tunnel.MemoryStore{}
}

// issuedBy are the credentials of an agent that has just enrolled at a replica
// with the clock.
func (r *replicas) issuedBy(c *clock) tunnel.CredentialStore {
	r.t.Helper()
	key := newKey(r.t)
	cert := leaf(r.t, r.Authority, key, func(cert *x509.Certificate) {
		cert.NotBefore, cert.NotAfter = c.now().Add(-tunnel.Backdate), c.now().Add(tunnel.DefaultLife)
		cert.URIs = []*url.URL{tunnel.Identity{Cluster: testCluster, Agent: "known"}.URI()}
	})
	kept := &tunnel.MemoryCredentials{}
	err := kept.Save(r.t.Context(), &tunnel.Credentials{Key: key, Chain: []*x509.Certificate{cert}, Roots: []*x509.Certificate{r.Certificate}})
	if err != nil {
		r.t.Fatal(err)
	}
	return kept
}

// outcome is what came of an agent's first attempt at a replica: zero if it is
// connected.
func (r *replicas) outcome(name string, a *tunnel.Agent) tunnel.Code {
	r.t.Helper()
	failed := make(chan error, 1)
	a.Servers = []string{name + ":1"}
	a.Hooks.Failed = func(_ string, err error, _ time.Duration) {
		select {
		case failed <- err:
		default:
		}
	}
	b := r.beds[name]
	b.start(a)
	select {
	case <-b.up:
		return 0
	case err := <-failed:
		return codeOf(err)
	}
}

// Clocks that are off: of one replica, and of the agents, which is that of all
// replicas. Who is off by more than certificates are backdated, or than they
// live, is on its own; nobody is harmed for longer than that.
func TestWrongClocks(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	for _, tt := range []struct {
		name  string
		ahead time.Duration
		all   bool        // all replicas are: the agents are behind
		peers bool        // the replicas have sessions
		fresh tunnel.Code // of an enrolment at the one
		known tunnel.Code // of an agent with a new certificate
	}{
		{"right", 0, false, true, 0, 0},
		{"a replica is 10 minutes ahead", hour / 6, false, true, 0, 0},
		{"a replica is 10 minutes behind", -hour / 6, false, true, 0, 0},
		{"a replica is 3 hours ahead", 3 * hour, false, false, tunnel.CodePin, tunnel.CodeServerCertificate},
		{"a replica is 3 hours behind", -3 * hour, false, false, 0, tunnel.CodeBadCertificate},
		{"a replica is 8 days ahead", 8 * day, false, false, tunnel.CodePin, tunnel.CodeServerCertificate},
		{"a replica is 8 days behind", -8 * day, false, false, tunnel.CodePin, tunnel.CodeServerCertificate},
		{"the agents are 10 minutes behind", hour / 6, true, true, 0, 0},
		{"the agents are 3 hours behind", 3 * hour, true, true, tunnel.CodePin, tunnel.CodeServerCertificate},
		{"the agents are 3 hours ahead", -3 * hour, true, true, 0, 0},
		{"the agents are 8 days ahead", -8 * day, true, true, tunnel.CodePin, tunnel.CodePin}, // it enrols anew
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t)
				time.Sleep(30 * day) // the authority is older than any clock is off
				both := &members{all: []string{"a:1", "b:1"}}
				r.serveSkewed("office", &members{}, 0) // where invitations come from
				a := r.serveSkewed("a", both, tt.ahead)
				b := r.serveSkewed("b", both, 0)
				if tt.all {
					b.ahead.Store(int64(tt.ahead))
				}
				known, fresh := &tunnel.Agent{Credentials: r.issuedBy(b)}, &tunnel.Agent{}
				for _, agent := range []*tunnel.Agent{known, fresh} {
					inv := r.beds["office"].invite()
					agent.Invitation = func(context.Context) (tunnel.Invitation, error) { return inv, nil }
				}
				time.Sleep(time.Minute)
				if got := slices.Contains(connected(r.beds["a"].s), "b") && slices.Contains(connected(r.beds["b"].s), "a"); got != tt.peers {
					t.Errorf("got sessions between the replicas: %t, want %t", got, tt.peers)
				}
				if got := r.outcome("a", fresh); got != tt.fresh {
					t.Errorf("an enrolment: got %d (%v), want %d", got, got, tt.fresh)
				}
				if got := r.outcome("a", known); got != tt.known {
					t.Errorf("an agent with a new certificate: got %d (%v), want %d", got, got, tt.known)
				}
				a.ahead.Store(0)
				b.ahead.Store(0)
				r.mended("a", "b", 2)
			})
		})
	}
}

// mended waits until one replica has all agents, and another one a way to them.
func (r *replicas) mended(name, other string, agents int) {
	r.t.Helper()
	for range 120 {
		synctest.Wait()
		sessions := 0
		for _, c := range r.beds[name].s.Status().Clusters {
			sessions += len(c.Sessions)
		}
		if sessions == agents && slices.Contains(connected(r.beds[other].s), name) {
			r.beds[other].echo().Close()
			return
		}
		time.Sleep(time.Second)
	}
	r.t.Errorf("two minutes after the clocks were put right: got the fleet %+v", r.beds[other].s.Fleet(r.t.Context()))
}
