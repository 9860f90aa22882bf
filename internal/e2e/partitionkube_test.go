package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// A replica is cut from the API server: what it knows counts, what it would
// have to ask for is refused, and nothing is lost by that.
func testCutFromAPIServer(t *testing.T, table *faultTable) {
	const known, doomed, fresh, there = "e2e/known", "e2e/doomed", "e2e/fresh", "e2e/there"
	s := newSplit(t, table, "a replica and the API server", "a", "b", "agents")
	s.target("agents")
	k := newSplitKube(s, "tunnel-partition")
	direct := k.store(k.admin)
	s.store = direct
	k.setSlice("tunnel", "a", "b")
	a, b := k.replica("a"), k.replica("b")
	s.mesh()
	credentials := &tunnel.MemoryCredentials{}
	first := s.agent("agents", known, &tunnel.Agent{Credentials: credentials}, "a", "b")
	bad := s.agent("agents", doomed, &tunnel.Agent{}, "a", "b")
	s.agent("agents", there, &tunnel.Agent{}, "b")
	for _, cluster := range []string{known, doomed} {
		a.has(cluster, 1)
		b.has(cluster, 1)
	}
	b.has(there, 1)
	invitation := s.invite(fresh)
	k.revoke(direct, "before")
	a.learns("before")

	s.cutBoth("a", "router")
	enrolling := s.agent("agents", fresh, &tunnel.Agent{Invitation: func(context.Context) (tunnel.Invitation, error) { return invitation, nil }}, "a")
	s.tell("enrolment", "refused, the agent tries again", enrolling.fails(s, tunnel.CodeInternal))
	first.stop()
	a.has(known, 0)
	began := time.Now()
	first = s.agent("agents", known, &tunnel.Agent{Credentials: credentials}, "a")
	a.has(known, 1)
	s.tell("a known agent connects", "let in", time.Since(began))
	s.tell("dial, agent at another replica", "works", a.echoes(there))
	s.tell("dial, agent here", "works", a.echoes(known))
	began = time.Now()
	if err := b.Revoke(t.Context(), bad.identity()); err != nil {
		t.Fatal(err)
	}
	a.has(doomed, 0)
	s.tell("revocation at another replica", "the sessions end here, too", time.Since(began))
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began = time.Now()
	if err := a.Revoke(short, first.identity()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v of a revocation that nobody has written, want the context's end", err)
	}
	s.tell("revocation at the cut replica", "an error with the caller's deadline, nothing is revoked", time.Since(began))

	if err := s.Reset(t.Context(), "a", "router"); err != nil {
		t.Fatal(err)
	}
	a.until("that it has lost its watch", func() bool { return len(a.watchErrors) > 0 })
	first.stop()
	a.has(known, 0)
	began = time.Now()
	s.agent("agents", known, &tunnel.Agent{Credentials: credentials}, "a")
	a.has(known, 1)
	s.tell("a known agent connects when the watch is known to be lost", "let in, until MaxStale is over", time.Since(began))
	s.tell("dial, agent at another replica, then", "works", a.echoes(there))

	s.heal()
	began = time.Now()
	a.has(fresh, 1)
	s.tell("that enrolment after healing", "works, with the same token", time.Since(began))
	k.revoke(direct, "after")
	a.learns("after")
	s.tell("revocations after healing", "seen again", time.Since(began))
	s.tell("dial by the other replica", "works", b.echoes(fresh))
}

// A kubeReplica keeps its state in Secrets.
type kubeReplica struct {
	*replica
	watchErrors []error // guarded by the replica's mu
	expelled    []tunnel.Identity
}

// store is what a replica has that reaches the API server by the client.
func (k *splitKube) store(client clientset.Interface) *kubernetes.SecretStore {
	return &kubernetes.SecretStore{Client: client, Namespace: k.namespace}
}

// replica serves at the host of the name, and knows of the others, and of
// tokens and revocations, by the API server.
func (k *splitKube) replica(name string) *kubeReplica {
	s := k.split
	s.t.Helper()
	store := k.store(k.clientAt(name))
	watched := &watchedStore{Store: store}
	server := &tunnel.Server{Store: watched, Peers: k.slices(name, "tunnel"), HandshakeTimeout: 9 * time.Second}
	r := &kubeReplica{replica: s.replica(name, server)}
	watched.learnt = func(record tunnel.Record) {
		var id tunnel.Identity
		if json.Unmarshal(record.Data, &id) != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.expelled = append(r.expelled, id)
	}
	store.Error = func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.watchErrors = append(r.watchErrors, err)
	}
	during(s.t, server.FollowStore)
	return r
}

// watchedStore tells of what it learns by a watch.
type watchedStore struct {
	tunnel.Store
	learnt func(tunnel.Record)
}

func (s *watchedStore) Watch(ctx context.Context, kind tunnel.Kind, changed func(tunnel.Record)) error {
	return s.Store.Watch(ctx, kind, func(r tunnel.Record) {
		changed(r)
		s.learnt(r)
	})
}

// revoked is an agent that never was.
func revoked(agent string) tunnel.Identity {
	return tunnel.Identity{Cluster: "e2e/nobody", Agent: agent}
}

// revoke has the API server know a revocation that no replica is told of.
func (k *splitKube) revoke(store *kubernetes.SecretStore, agent string) {
	k.split.t.Helper()
	if _, err := (&tunnel.Records{Store: store}).Revoke(k.split.t.Context(), revoked(agent), time.Now()); err != nil {
		k.split.t.Fatal(err)
	}
}

// learns waits until the replica has seen such a revocation.
func (r *kubeReplica) learns(agent string) {
	r.split.t.Helper()
	r.until("the revocation "+agent, func() bool { return slices.Contains(r.expelled, revoked(agent)) })
}

func (a *runningAgent) identity() tunnel.Identity {
	status := a.Status()
	return tunnel.Identity{Cluster: status.Cluster, Agent: status.Agent}
}

// fails waits until the agent tells of an attempt that failed with the code, and
// returns how long that took.
func (a *runningAgent) fails(s *split, code tunnel.Code) time.Duration {
	s.t.Helper()
	began := time.Now()
	var e *tunnel.Error
	if err := next(s.t, a.failed, time.Minute, "a failed attempt"); !errors.As(err, &e) || e.Code != code {
		s.t.Errorf("got %v, want %v", err, code)
	}
	return time.Since(began)
}
