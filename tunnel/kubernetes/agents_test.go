package kubernetes_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/storetest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// More strangers than an invitation is for show its token at the same time, by hand, to
// three servers of one store: as many as it is for get a certificate, and the same ones
// again.
func TestInvitedAtOnce(t *testing.T) {
	const invited, come = 5, 6
	api := apitest.New(t)
	a := authority(t)
	var addresses []string
	var servers []*tunnel.Server
	for range 3 {
		s := &tunnel.Server{Authority: a, Store: store(t, api)}
		servers, addresses = append(servers, s), append(addresses, serve(t, s))
	}
	inv, err := servers[0].InviteAgents(t.Context(), "default/prod", invited, 0)
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]*ecdsa.PrivateKey, come)
	for n := range keys {
		if keys[n], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	var first []uint64
	for round := range 2 {
		codes := make([]uint64, come)
		start := make(chan struct{})
		var strangers sync.WaitGroup
		for n, key := range keys {
			strangers.Go(func() {
				<-start
				answer, err := enrol(t, addresses[(n+round)%3], inv.Token, key)
				if err != nil {
					t.Error(err)
				}
				codes[n] = answer.Code
			})
		}
		close(start)
		strangers.Wait()
		want := append(make([]uint64, invited), slices.Repeat([]uint64{uint64(tunnel.CodeTokenUsed)}, come-invited)...)
		if sorted := slices.Sorted(slices.Values(codes)); !slices.Equal(sorted, want) {
			t.Errorf("round %d: got the codes %v, want %v", round, sorted, want)
		}
		if round > 0 && !slices.Equal(codes, first) {
			t.Errorf("got the codes %v after %v, want the same for each key", codes, first)
		}
		first = codes
	}
	if left, err := servers[2].Invitations(t.Context(), "default/prod"); err != nil || len(left) != 0 {
		t.Errorf("got %v, %v, want no invitation that is left", left, err)
	}
}

// Secrets of the version that knew tokens for one agent only, and no revocation of a
// cluster.
func TestFormerSecrets(t *testing.T) {
	api := apitest.New(t)
	s := store(t, api)
	for n, key := range []string{"", "former"} {
		tok, known := storetest.Token(n, time.Now().UTC()), secretKeys(api)
		if err := records(s).AddToken(t.Context(), tok); err != nil { // for the name
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"id":%q,"cluster":%q,"created":%q,"expires":%q`, tok.ID, tok.Cluster, tok.Created.Format(time.RFC3339Nano), tok.Expires.Format(time.RFC3339Nano))
		if key != "" {
			text += fmt.Sprintf(`,"key":%q`, key)
		}
		for _, name := range secretKeys(api) {
			if !slices.Contains(known, name) {
				api.Change(name, func(u *unstructured.Unstructured) {
					u.SetLabels(map[string]string{kubernetes.LabelToken: "causeway"})
					unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte(text+"}")), "data", "value")
				})
			}
		}
	}
	listed, err := records(s).Tokens(t.Context(), "default/prod")
	if err != nil || len(listed) != 2 {
		t.Errorf("got %+v, %v, want both tokens", listed, err)
	}
	for n, want := range []string{"now", "former"} {
		got, err := records(s).ClaimToken(t.Context(), storetest.Token(n, time.Now()).ID, "now")
		if err != nil || !cmp.Equal(got.Keys, []string{want}) {
			t.Errorf("got %+v, %v, want the key %q", got, err, want)
		}
	}
}

// A token with a key is used to the version that knew one key for each token, whatever
// number of agents it is for.
func TestFormerReader(t *testing.T) {
	api := apitest.New(t)
	s, tok := store(t, api), storetest.Token(0, time.Now())
	tok.Agents = 3
	if err := records(s).AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if _, err := records(s).ClaimToken(t.Context(), tok.ID, key); err != nil {
			t.Fatal(err)
		}
	}
	data, _, _ := unstructured.NestedString(api.List("secrets")[0].Object, "data", "value")
	text, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	former := struct{ Key string }{}
	if err := json.Unmarshal(text, &former); err != nil || former.Key != "a" {
		t.Errorf("got %+v, %v, want the first key", former, err)
	}
}

// A revocation of a cluster reaches the memory of another replica with its time, a later
// one too, and Expel is called for each.
func TestClusterRevoked(t *testing.T) {
	r := newReplicas(t, nil)
	id := tunnel.Identity{Cluster: "default/prod"}
	gets := asked(r.api, http.MethodGet)
	now := time.Now().UTC().Truncate(time.Millisecond)
	for _, want := range []time.Time{now, now.Add(time.Millisecond)} {
		if at, err := records(r.first).Revoke(t.Context(), id, now); err != nil || !at.Equal(want) {
			t.Fatalf("got %v, %v, want %v", at, err, want)
		}
		if got := receive(t, r.expelled, "the revocation of the cluster"); got != id {
			t.Errorf("got %v expelled, want %v", got, id)
		}
		before := gets.Load()
		if at, err := records(r.runs).Revoked(t.Context(), id); err != nil || !at.Equal(want) || gets.Load() != before {
			t.Errorf("got %v, %v after %d requests, want %v from memory", at, err, gets.Load()-before, want)
		}
	}
	r.revoked(t, "new", false) // an agent by itself
	r.stop()
	if at, err := records(r.runs).Revoked(t.Context(), id); err != nil || !at.Equal(now.Add(time.Millisecond)) {
		t.Errorf("got %v, %v from the API server", at, err)
	}
}

// A revocation that can't be read lets nobody in, and can be made again.
func TestRevocationDamaged(t *testing.T) {
	api := apitest.New(t)
	s, id := store(t, api), tunnel.Identity{Cluster: "default/prod"}
	revoke := func() {
		t.Helper()
		if _, err := records(s).Revoke(t.Context(), id, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	revoke()
	for _, data := range []string{"", "{", "{}", `{"cluster":"other","at":"2026-01-02T03:04:05Z"}`} {
		api.Change(secretKeys(api)[0], func(u *unstructured.Unstructured) {
			unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte(data)), "data", "value")
		})
		if at, err := records(s).Revoked(t.Context(), id); err == nil {
			t.Errorf("%q: got %v, want an error", data, at)
		}
	}
	revoke()
	if at, err := records(s).Revoked(t.Context(), id); err != nil || at.IsZero() {
		t.Errorf("made again: got %v, %v", at, err)
	}
}
