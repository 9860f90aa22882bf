package kubernetes_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corefake "k8s.io/client-go/kubernetes/typed/core/v1/fake"
	discoveryfake "k8s.io/client-go/kubernetes/typed/discovery/v1/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/storetest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

func store(t *testing.T, s *apitest.Server) *kubernetes.SecretStore {
	return &kubernetes.SecretStore{Client: client(t, s), Namespace: namespace}
}

// records are the tokens and revocations of the store.
func records(s tunnel.Store) *tunnel.Records { return &tunnel.Records{Store: s} }

func TestSecretStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Pair {
		s := apitest.New(t)
		return storetest.Pair{store(t, s), store(t, s)}
	})
}

// A token is claimed by who wrote first, whoever else writes to the Secret.
func TestClaimBetween(t *testing.T) {
	s := apitest.New(t)
	one, tok := store(t, s), storetest.Token(0, time.Now())
	if err := records(one).AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	key := secretKeys(s)[0]
	for _, tt := range []struct {
		name    string
		between func()
		want    string
		err     error
	}{
		{"another's label", func() {
			s.Change(key, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) })
		}, "mine", nil},
		{"deleted", func() { s.Remove(key) }, "", fs.ErrNotExist},
	} {
		puts := 0
		s.SetFault(func(r *http.Request) int {
			if r.Method == http.MethodPut {
				if puts++; puts == 1 {
					tt.between()
				}
			}
			return 0
		})
		got, err := records(one).ClaimToken(t.Context(), tok.ID, "mine")
		if strings.Join(got.Keys, " ") != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", tt.name, got.Keys, err, tt.want, tt.err)
		}
		if puts == 0 {
			t.Errorf("%s: nothing was written", tt.name)
		}
		s.SetFault(nil)
		if s.Get(key) != nil {
			s.Remove(key)
		}
		if err := records(one).AddToken(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
	}
}

// A Secret that somebody has edited is no token.
func TestTokenDamaged(t *testing.T) {
	s := apitest.New(t)
	one, tok := store(t, s), storetest.Token(0, time.Now())
	if err := records(one).AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	key := secretKeys(s)[0]
	for _, data := range []string{"", "{", "{}", `{"id":"another"}`} {
		s.Change(key, func(u *unstructured.Unstructured) {
			unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte(data)), "data", "value")
		})
		for range 2 {
			if _, err := records(one).ClaimToken(t.Context(), tok.ID, "k"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "is damaged") {
				t.Errorf("%q: got %v, want an error that says so", data, err)
			}
		}
	}
	for _, bad := range []tunnel.Token{{}, {ID: "a", Keys: []string{"k"}}} {
		if err := records(one).AddToken(t.Context(), bad); err == nil {
			t.Errorf("%+v was added", bad)
		}
	}
}

func secretKeys(s *apitest.Server) (keys []apitest.Key) {
	for _, u := range s.List("secrets") {
		keys = append(keys, apitest.Named("secrets", u.GetNamespace(), u.GetName()))
	}
	return keys
}

// Old tokens go in pages, another store's and what can't be read stay, and the
// next look is an hour later.
func TestSweep(t *testing.T) {
	s := apitest.New(t)
	foreign := store(t, s)
	foreign.Prefix = "other"
	one, other := records(store(t, s)), records(foreign)
	old := time.Now().Add(-30 * 24 * time.Hour)
	const many = 601 // more than a page
	add := func(to *tunnel.Records, n int, at time.Time) {
		t.Helper()
		if err := to.AddToken(t.Context(), storetest.Token(n, at)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range many {
		add(one, n, old)
	}
	add(other, 0, old)
	s.Change(secretKeys(s)[0], func(*unstructured.Unstructured) {})
	lists := 0
	s.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodGet && r.URL.Query().Get("labelSelector") != "" {
			lists++
		}
		return 0
	})
	add(one, many, time.Now())
	add(one, many+1, time.Now())
	if lists != 2 {
		t.Errorf("got %d requests for lists, want two pages, once", lists)
	}
	if got := len(s.List("secrets")); got != 3 {
		t.Errorf("got %d Secrets, want the two new ones and the other store's", got)
	}
	if _, err := other.ClaimToken(t.Context(), storetest.Token(0, old).ID, "k"); err != nil {
		t.Errorf("the other store's token: %v", err)
	}
}

// What a Secret is called says nothing of what is in it.
func TestSecretNames(t *testing.T) {
	s := apitest.New(t)
	one := store(t, s)
	server := &tunnel.Server{Authority: authority(t), Store: one}
	defer server.Close()
	inv, err := server.Invite(t.Context(), "default/prod", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Revoke(t.Context(), tunnel.Identity{Cluster: "default/prod", Agent: "abc"}); err != nil {
		t.Fatal(err)
	}
	_, secret, _ := strings.Cut(strings.TrimPrefix(inv.Token, "causeway1."), ".")
	all := s.List("secrets")
	if len(all) != 2 {
		t.Fatalf("got %d Secrets, want that of the token and that of the revocation", len(all))
	}
	for _, u := range all {
		data, _, _ := unstructured.NestedString(u.Object, "data", "value")
		if strings.Contains(u.GetName(), "prod") || data == "" {
			t.Errorf("got the name %s, %d bytes", u.GetName(), len(data))
		}
	}
	list, err := one.Client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		var token struct{ ID string }
		json.Unmarshal(item.Data["value"], &token) // a revocation has none
		if token.ID != "" && strings.Contains(item.Name, token.ID) {
			t.Errorf("the name %s holds the token's id", item.Name)
		}
		if strings.Contains(string(item.Data["value"]), secret) || !strings.Contains(string(item.Data["value"]), "default/prod") {
			t.Errorf("%s holds %s", item.Name, item.Data["value"])
		}
	}
}

// While the API server is away nothing is granted, and the cause is kept.
func TestSecretStoreAway(t *testing.T) {
	s := apitest.New(t)
	one, tok, id := store(t, s), storetest.Token(0, time.Now()), tunnel.Identity{Cluster: "c", Agent: "a"}
	if err := records(one).AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	away(s)
	ctx := t.Context()
	for what, call := range map[string]func() error{
		"add":     func() error { return records(one).AddToken(ctx, storetest.Token(1, time.Now())) },
		"claim":   func() error { _, err := records(one).ClaimToken(ctx, tok.ID, "k"); return err },
		"revoke":  func() error { _, err := records(one).Revoke(ctx, id, time.Now()); return err },
		"revoked": func() error { _, err := records(one).Revoked(ctx, id); return err },
	} {
		err := call()
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || !strings.HasPrefix(err.Error(), "tunnel/kubernetes: ") {
			t.Errorf("%s: got %v, want an error of the API server", what, err)
		}
	}
}

// What can't work says which field it lacks.
func TestRequired(t *testing.T) {
	fake := &clienttesting.Fake{}
	ctx, c := t.Context(), clients{core: &corefake.FakeCoreV1{Fake: fake}, discovery: &discoveryfake.FakeDiscoveryV1{Fake: fake}}
	for want, call := range map[string]func() error{
		"secret store: field Client": func() error {
			_, err := records(&kubernetes.SecretStore{Namespace: "n"}).ClaimToken(ctx, "x", "k")
			return err
		},
		"secret store: field Namespace": func() error { return (&kubernetes.SecretStore{Client: c}).Watch(ctx, tunnel.KindRevoked, nil) },
		"endpoint slices: field Client": func() error { return kubernetes.EndpointSlices{}.Watch(ctx, nil) },
		"endpoint slices: field Namespace": func() error {
			return kubernetes.EndpointSlices{Client: c}.Watch(ctx, nil)
		},
		"endpoint slices: field Service": func() error {
			return kubernetes.EndpointSlices{Client: c, Namespace: "n"}.Watch(ctx, nil)
		},
		"authority secret: field Client": func() error { _, err := kubernetes.AuthoritySecret{}.Load(ctx); return err },
		"authority secret: field Namespace": func() error {
			return kubernetes.AuthoritySecret{Client: c}.Watch(ctx, nil)
		},
		"authority secret: field Name": func() error {
			_, err := kubernetes.AuthoritySecret{Client: c, Namespace: "n"}.LoadOrCreate(ctx)
			return err
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want+" is required") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if n := len(fake.Actions()); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

// What the Secrets are called, and their labels and keys, is what servers of before read.
func TestSecretForms(t *testing.T) {
	const label, cluster = "causewayproject.github.io/tunnel-", "2e159cc5a46c64344c9a33e131965c9e"
	for _, tt := range []struct {
		r      tunnel.Record
		name   string
		labels map[string]string
		keys   string
	}{
		{tunnel.Record{Kind: tunnel.KindToken, Name: "aaaaaaaaaaaaaaaa", Cluster: "default/prod"},
			"token-0c0beacef8877bbf2416eb00f2b5dc96354e26dd1df5517320459b1236860f8c",
			map[string]string{label + "token": "tunnel", label + "cluster": cluster + "4f1b7064"}, "value"},
		{tunnel.Record{Kind: tunnel.KindRevoked, Name: "867f20a1"}, "revoked-867f20a1", map[string]string{label + "revoked": "tunnel"}, "value"},
		{tunnel.Record{Kind: tunnel.KindPayload, Name: "default/prod\nauthorized_keys", Cluster: "default/prod"}, "payload-0920347cf40e38dd8aa116cd4cddbc5b",
			map[string]string{label + "state": "tunnel", label + "payload": cluster}, "cluster name value"},
		{tunnel.Record{Kind: tunnel.KindValue, Name: "servers"}, "servers", map[string]string{label + "state": "tunnel"}, "value"},
	} {
		s := apitest.New(t)
		one := store(t, s)
		one.Prefix, tt.r.Data = "tunnel", []byte("data")
		if err := one.Create(t.Context(), tt.r); err != nil {
			t.Fatal(err)
		}
		u := s.List("secrets")[0]
		data, _, _ := unstructured.NestedMap(u.Object, "data")
		if keys := strings.Join(slices.Sorted(maps.Keys(data)), " "); u.GetName() != "tunnel-"+tt.name || !maps.Equal(u.GetLabels(), tt.labels) || keys != tt.keys {
			t.Errorf("got %s, %v, %s; want %s, %v, %s", u.GetName(), u.GetLabels(), keys, tt.name, tt.labels, tt.keys)
		}
	}
}
