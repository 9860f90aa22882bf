package kubernetes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

func agent(name string) tunnel.Identity {
	return tunnel.Identity{Cluster: "default/prod", Agent: name}
}

// replicas are two stores of one API server, of which the second runs.
type replicas struct {
	api         *apitest.Server
	first, runs *kubernetes.SecretStore
	expelled    chan tunnel.Identity
	errs        chan error
	stop        func()
}

// newReplicas returns once the second store has learnt that "old" is revoked.
func newReplicas(t *testing.T, set func(*kubernetes.SecretStore)) *replicas {
	t.Helper()
	r := &replicas{api: apitest.New(t), expelled: make(chan tunnel.Identity, 100), errs: make(chan error, 100)}
	r.first, r.runs = store(t, r.api), store(t, r.api)
	r.runs.Error = tell(r.errs)
	if set != nil {
		set(r.runs)
	}
	r.revoke(t, "old")
	r.stop = start(t, func(ctx context.Context) error {
		return r.runs.Watch(ctx, tunnel.KindRevoked, func(record tunnel.Record) {
			var id tunnel.Identity
			if json.Unmarshal(record.Data, &id) == nil {
				r.expelled <- id
			}
		})
	})
	r.expels(t, "old")
	return r
}

func (r *replicas) revoke(t *testing.T, name string) {
	t.Helper()
	if _, err := records(r.first).Revoke(t.Context(), agent(name), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func (r *replicas) expels(t *testing.T, name string) {
	t.Helper()
	if got := receive(t, r.expelled, "the revocation of "+name); got != agent(name) {
		t.Errorf("got %v expelled, want %v", got, agent(name))
	}
}

// revoked wants an answer of the second store.
func (r *replicas) revoked(t *testing.T, name string, want bool) {
	t.Helper()
	if got, err := records(r.runs).Revoked(t.Context(), agent(name)); err != nil || got.IsZero() == want {
		t.Errorf("%s: got %v, %v, revoked: want %t", name, got, err, want)
	}
}

// All agents come back at once: none is asked for, and another replica's
// revocations are known.
func TestRevokedFromMemory(t *testing.T) {
	r := newReplicas(t, nil)
	r.revoke(t, "new")
	r.expels(t, "new")
	gets := asked(r.api, http.MethodGet)
	r.revoked(t, "old", true)
	r.revoked(t, "new", true)
	for n := range 5000 {
		r.revoked(t, fmt.Sprint("agent", n), false)
	}
	if n := gets.Load(); n != 0 {
		t.Errorf("got %d requests for a Secret, want none", n)
	}
	r.api.Hold("secrets", true) // the watch tells nothing
	if _, err := records(r.runs).Revoke(t.Context(), agent("own"), time.Now()); err != nil {
		t.Fatal(err)
	}
	r.revoked(t, "own", true)
	r.stop()
	r.revoked(t, "agent1", false)
	if n := gets.Load(); n != 1 {
		t.Errorf("got %d requests for a Secret after the end of Run, want 1", n)
	}
}

// While the API server is away, what is known counts for MaxStale.
func TestRevokedAway(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stale time.Duration
		ok    bool
	}{
		{"by default", 0, true},
		{"an hour", time.Hour, true},
		{"over", 1, false},
		{"never", -1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newReplicas(t, func(s *kubernetes.SecretStore) { s.MaxStale = tt.stale })
			away(r.api)
			err := receive(t, r.errs, "the error of the watch")
			if !strings.HasPrefix(err.Error(), "tunnel/kubernetes: watch revoked: ") {
				t.Errorf("got %v", err)
			}
			r.revoked(t, "old", true)
			got, err := records(r.runs).Revoked(t.Context(), agent("other"))
			if !got.IsZero() || (err == nil) != tt.ok {
				t.Errorf("got %v, %v, want zero, an error: %t", got, err, !tt.ok)
			}
		})
	}
}

// What happened while nobody watched is learnt, revocations that were taken
// back too; what was told before is not told again.
func TestRevokedGap(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, nil)
	old := secretKeys(r.api)[0]
	r.api.Gap(func() {
		r.api.Remove(old)
		r.revoke(t, "meanwhile")
	})
	receive(t, r.errs, "the error of the watch")
	r.expels(t, "meanwhile")
	gets := asked(r.api, http.MethodGet)
	r.revoked(t, "meanwhile", true)
	r.revoked(t, "old", false)
	if n := gets.Load(); n != 0 {
		t.Errorf("got %d requests for a Secret, want none", n)
	}
	r.api.Gap(func() { r.revoke(t, "later") })
	r.expels(t, "later")
}

// A watch that tells nothing any more does not hold up who revokes again.
func TestRevokedLate(t *testing.T) {
	r := newReplicas(t, nil)
	r.api.Hold("secrets", true)
	id, now := tunnel.Identity{Cluster: "default/prod"}, time.Now().UTC().Truncate(time.Millisecond)
	for n, s := range []*kubernetes.SecretStore{r.first, r.runs, r.first, r.runs} {
		want := now.Add(time.Duration(n) * time.Millisecond)
		if at, err := records(s).Revoke(t.Context(), id, now); err != nil || !at.Equal(want) {
			t.Errorf("%d: got %v, %v, want %v", n, at, err, want)
		}
	}
}

// Where the watch does not work but the API server does, it is asked each time.
func TestRevokedAsked(t *testing.T) {
	api := apitest.New(t)
	first, runs := store(t, api), store(t, api)
	errs := make(chan error, 1)
	runs.Error = tell(errs)
	api.SetFault(func(r *http.Request) int {
		if r.URL.Query().Get("watch") != "" {
			return http.StatusForbidden
		}
		return 0
	})
	start(t, func(ctx context.Context) error { return runs.Watch(ctx, tunnel.KindRevoked, func(tunnel.Record) {}) })
	receive(t, errs, "the error of the watch")
	if _, err := records(first).Revoke(t.Context(), agent("a"), time.Now()); err != nil {
		t.Fatal(err)
	}
	if got, err := records(runs).Revoked(t.Context(), agent("a")); err != nil || got.IsZero() {
		t.Errorf("got %v, %v, want revoked", got, err)
	}
}
