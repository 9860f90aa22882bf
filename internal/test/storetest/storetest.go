// Package storetest holds what every [tunnel.Store] has to do, as tests.
package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/tunnel"
)

// Pair is two Stores that share their state, as those of two servers do.
type Pair [2]tunnel.Store

// records are the tokens and revocations of a Pair.
type records [2]*tunnel.Records

// Run runs the tests; each opens a Pair of its own, which is empty.
func Run(t *testing.T, open func(*testing.T) Pair) {
	for _, kind := range kinds {
		t.Run("record-"+string(kind.first.Kind), func(t *testing.T) { testRecord(t, open(t), kind) })
	}
	t.Run("count", func(t *testing.T) { testCount(t, open(t)) })
	t.Run("race", func(t *testing.T) { Race(t, open(t), 8) })
	for _, test := range []struct {
		name string
		run  func(*testing.T, records)
	}{
		{"tokens", testTokens},
		{"several", testSeveral},
		{"list", testList},
		{"forget", testForget},
		{"revoked", testRevoked},
		{"cluster", testCluster},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			test.run(t, records{{Store: s[0]}, {Store: s[1]}})
		})
	}
}

const week = 7 * 24 * time.Hour

// Token returns a token, one for each n below 676.
func Token(n int, created time.Time) tunnel.Token {
	return tunnel.Token{ID: fmt.Sprintf("aaaaaaaaaaaaaa%c%c", 'a'+n/26, 'a'+n%26), Cluster: "default/prod",
		Created: created, Expires: created.Add(time.Hour)}
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func testTokens(t *testing.T, s records) {
	ctx, tok := t.Context(), Token(0, now)
	if err := s[0].AddToken(ctx, tok); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{Token(9, now).ID, "", ".", "../tokens/" + tok.ID, "x", strings.Repeat("a", 15) + "\n"} {
		if _, err := s[0].ClaimToken(ctx, id, "k"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ClaimToken(%q): got %v, want %v", id, err, fs.ErrNotExist)
		}
	}
	if err := s[1].AddToken(ctx, tok); !errors.Is(err, fs.ErrExist) {
		t.Errorf("added twice: got %v, want %v", err, fs.ErrExist)
	}
	want := tok
	want.Keys = []string{"first"}
	for _, key := range []string{"first", "second", "first"} {
		if got, err := s[1].ClaimToken(ctx, tok.ID, key); err != nil || !cmp.Equal(got, want) {
			t.Errorf("claimed by %s: got %v, %v; want %v", key, got, err, want)
		}
	}
	if got, err := s[0].ClaimToken(ctx, tok.ID, "third"); err != nil || !cmp.Equal(got, want) {
		t.Errorf("claimed at the other store: got %v, %v; want %v", got, err, want)
	}
}

// several: a token takes as many keys as it is for.
func testSeveral(t *testing.T, s records) {
	ctx, tok := t.Context(), Token(0, now)
	tok.Agents, tok.After = 3, now.Add(-time.Hour).Truncate(time.Millisecond)
	if err := s[0].AddToken(ctx, tok); err != nil {
		t.Fatal(err)
	}
	want := tok
	for n, key := range []string{"a", "b", "a", "c", "d", "b"} {
		if !slices.Contains(want.Keys, key) && len(want.Keys) < 3 {
			want.Keys = append(slices.Clone(want.Keys), key)
		}
		if got, err := s[n%2].ClaimToken(ctx, tok.ID, key); err != nil || !cmp.Equal(got, want) {
			t.Errorf("claimed by %s: got %+v, %v; want %+v", key, got, err, want)
		}
	}
}

// list: the tokens of a cluster, used ones too, until they are removed.
func testList(t *testing.T, s records) {
	ctx := t.Context()
	var want []tunnel.Token
	for n, cluster := range []string{"default/prod", "default/staging", "default/prod"} {
		tok := Token(n, now)
		tok.Cluster = cluster
		if err := s[n%2].AddToken(ctx, tok); err != nil {
			t.Fatal(err)
		}
		if n == 2 {
			claimed, err := s[0].ClaimToken(ctx, tok.ID, "k")
			if err != nil {
				t.Fatal(err)
			}
			tok = claimed
		}
		if cluster == "default/prod" {
			want = append(want, tok)
		}
	}
	for ; len(want) > 0; want = want[1:] {
		got, err := s[1].Tokens(ctx, "default/prod")
		slices.SortFunc(got, func(a, b tunnel.Token) int { return strings.Compare(a.ID, b.ID) })
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		for range 2 {
			if err := s[0].Store.Delete(ctx, tunnel.Record{Kind: tunnel.KindToken, Name: want[0].ID}); err != nil {
				t.Errorf("removing it: %v", err)
			}
		}
		if _, err := s[1].ClaimToken(ctx, want[0].ID, "k"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("claimed after it was removed: got %v, want %v", err, fs.ErrNotExist)
		}
	}
	if err := s[0].Store.Delete(ctx, tunnel.Record{Kind: tunnel.KindToken, Name: "../tokens/" + Token(1, now).ID}); err != nil {
		t.Errorf("removing what is no ID: %v", err)
	}
}

// forget: tokens that expired a week ago go when another one comes.
func testForget(t *testing.T, s records) {
	ctx, tok := t.Context(), Token(0, now)
	add := func(s *tunnel.Records, n int, created time.Time) {
		t.Helper()
		if err := s.AddToken(ctx, Token(n, created)); err != nil {
			t.Fatal(err)
		}
	}
	add(s[0], 0, now)
	if _, err := s[0].ClaimToken(ctx, tok.ID, "first"); err != nil {
		t.Fatal(err)
	}
	add(s[0], 1, tok.Expires.Add(week-1))
	if got, err := s[0].ClaimToken(ctx, tok.ID, "second"); err != nil || !slices.Equal(got.Keys, []string{"first"}) {
		t.Errorf("just before a week: got %v, %v", got, err)
	}
	add(s[1], 2, tok.Expires.Add(week))
	if _, err := s[0].ClaimToken(ctx, tok.ID, "second"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a week: got %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := s[0].ClaimToken(ctx, Token(1, now).ID, "second"); err != nil {
		t.Errorf("the younger one: %v", err)
	}
}

func testRevoked(t *testing.T, s records) {
	id := tunnel.Identity{Cluster: "default/prod", Agent: "a"}
	for range 2 {
		if _, err := s[0].Revoke(t.Context(), id, now); err != nil {
			t.Error(err)
		}
	}
	for _, test := range []struct {
		id   tunnel.Identity
		want bool
	}{
		{id, true},
		{tunnel.Identity{Cluster: "default/prod", Agent: "b"}, false},
		{tunnel.Identity{Cluster: "default", Agent: "prod/a"}, false},
		{tunnel.Identity{Cluster: "../..", Agent: "a"}, false},
	} {
		if got, err := s[1].Revoked(t.Context(), test.id); err != nil || got.IsZero() == test.want {
			t.Errorf("%v: got %v, %v; revoked: want %t", test.id, got, err, test.want)
		}
	}
}

// cluster: the revocation of a cluster has a time, each a later one.
func testCluster(t *testing.T, s records) {
	ctx, id := t.Context(), tunnel.Identity{Cluster: "default/prod"}
	now := now.Truncate(time.Millisecond)
	want := func(want time.Time) {
		t.Helper()
		for n := range s {
			if got, err := s[n].Revoked(ctx, id); err != nil || !got.Equal(want) {
				t.Errorf("got %v, %v; want %v", got, err, want)
			}
		}
	}
	want(time.Time{})
	for n, step := range []struct{ now, want time.Time }{
		{now, now},
		{now.Add(-time.Hour), now.Add(time.Millisecond)},
		{now.Add(time.Millisecond), now.Add(2 * time.Millisecond)},
		{now.Add(time.Hour), now.Add(time.Hour)},
	} {
		if got, err := s[n%2].Revoke(ctx, id, step.now); err != nil || !got.Equal(step.want) {
			t.Errorf("revoked at %v: got %v, %v; want %v", step.now, got, err, step.want)
		}
		want(step.want)
	}
	for _, other := range []tunnel.Identity{{Cluster: "default/prod", Agent: "a"}, {Cluster: "default"}, {Cluster: "default/prod/"}} {
		if got, err := s[0].Revoked(ctx, other); err != nil || !got.IsZero() {
			t.Errorf("%+v: got %v, %v; want not revoked", other, got, err)
		}
	}
	raceRevocations(t, s, id, now.Add(2*time.Hour))
}

// raceRevocations revokes the cluster at the same time by many: each gets a time of its
// own, and the last one counts.
func raceRevocations(t *testing.T, s records, id tunnel.Identity, now time.Time) {
	t.Helper()
	times := make([]time.Time, 8)
	var wg sync.WaitGroup
	for n := range times {
		wg.Go(func() {
			at, err := s[n%2].Revoke(t.Context(), id, now)
			if err != nil {
				t.Error(err)
			}
			times[n] = at
		})
	}
	wg.Wait()
	slices.SortFunc(times, time.Time.Compare)
	if len(slices.CompactFunc(slices.Clone(times), time.Time.Equal)) != len(times) {
		t.Errorf("got the times %v, want each once", times)
	}
	if got, err := s[0].Revoked(t.Context(), id); err != nil || !got.Equal(times[len(times)-1]) {
		t.Errorf("got %v, %v; want the last of %v", got, err, times)
	}
}

// Race spends so many tokens with many keys at the same time: one wins, and all
// learn which.
func Race(t *testing.T, s Pair, rounds int) {
	both := records{{Store: s[0]}, {Store: s[1]}}
	for round := range rounds {
		tok := Token(round, time.Now())
		if err := both[0].AddToken(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
		start, keys := make(chan struct{}), make([]string, 16)
		var wg sync.WaitGroup
		for n := range keys {
			wg.Go(func() {
				<-start
				got, err := both[n%2].ClaimToken(t.Context(), tok.ID, fmt.Sprint("key", n))
				if err != nil {
					t.Error(err)
				}
				keys[n] = got.Keys[0]
			})
		}
		close(start)
		wg.Wait()
		OneWinner(t, keys)
	}
}

// OneWinner wants all to have learnt of the same key.
func OneWinner(t *testing.T, keys []string) {
	t.Helper()
	if one := slices.Compact(slices.Clone(keys)); len(one) != 1 || one[0] == "" {
		t.Errorf("got winners %q, want one", keys)
	}
}

// recordKind is a record of a kind, and what replaces it.
type recordKind struct {
	first  tunnel.Record
	second string
	of     string // an argument of List
}

var kinds = []recordKind{
	{tunnel.Record{Kind: tunnel.KindToken, Name: Token(0, now).ID, Cluster: "default/prod",
		Data: []byte(`{"id":"aaaaaaaaaaaaaaaa","cluster":"default/prod","created":"2026-01-02T03:04:05Z","expires":"2026-01-02T04:04:05Z"}`)},
		`{"id":"aaaaaaaaaaaaaaaa","cluster":"default/prod","created":"2026-01-02T03:04:05Z","expires":"2026-01-02T04:04:05Z","key":"k"}`, "default/prod"},
	{tunnel.Record{Kind: tunnel.KindRevoked, Name: hashOf(tunnel.Identity{Cluster: "default/prod"}), Cluster: "default/prod",
		Data: []byte(`{"cluster":"default/prod","at":"2026-01-02T03:04:05Z"}`)}, `{"cluster":"default/prod","at":"2026-01-02T03:04:06Z"}`, "default/prod"},
	{tunnel.Record{Kind: tunnel.KindPayload, Name: "default/prod\nkeys", Cluster: "default/prod", Data: []byte{}}, "second", "default/prod"},
	{tunnel.Record{Kind: tunnel.KindValue, Name: "join-a", Data: []byte("first")}, "second", "join-"},
}

func hashOf(id tunnel.Identity) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(id.URI().String())))
}

// testRecord writes by one Store and reads by the other, which watches.
func testRecord(t *testing.T, s Pair, kind recordKind) {
	ctx, first := t.Context(), kind.first
	changes := make(chan tunnel.Record, 100)
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := s[1].Watch(watching, first.Kind, func(r tunnel.Record) { changes <- r }); err != nil {
			t.Error(err)
		}
	})
	defer watch.Wait()
	defer stop()
	is := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	// told returns the record once the watch has told of it with this Data.
	told := func(data []byte) tunnel.Record {
		t.Helper()
		for {
			select {
			case r := <-changes:
				if r.Kind != first.Kind || r.Name != first.Name || r.Cluster != first.Cluster {
					t.Errorf("got %+v, want one like %+v", r, first)
				}
				if slices.Equal(r.Data, data) && (r.Data == nil) == (data == nil) {
					return r
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("the watch did not tell of %q", data)
			}
		}
	}
	_, err := s[0].Get(ctx, first.Kind, first.Name)
	is("there is none", err, fs.ErrNotExist)
	is("replace none", s[0].Replace(ctx, first), tunnel.ErrConflict)
	is("delete none", s[0].Delete(ctx, first), nil)
	is("create", s[0].Create(ctx, first), nil)
	is("create again", s[1].Create(ctx, first), fs.ErrExist)
	old := told(first.Data)
	testListed(t, s, kind, old)

	second := old
	second.Data = []byte(kind.second)
	is("replace", s[1].Replace(ctx, second), nil)
	is("replace what was replaced", s[0].Replace(ctx, second), tunnel.ErrConflict)
	is("delete what was replaced", s[0].Delete(ctx, old), tunnel.ErrConflict)
	second = told(second.Data)
	testListed(t, s, kind, second)

	is("delete", s[0].Delete(ctx, second), nil)
	told(nil)
	_, err = s[1].Get(ctx, first.Kind, first.Name)
	is("deleted", err, fs.ErrNotExist)
	is("create what was deleted", s[1].Create(ctx, first), nil)
	is("delete any version", s[1].Delete(ctx, first), nil)
}

// testListed wants both Stores to have this record, and no other.
func testListed(t *testing.T, s Pair, kind recordKind, want tunnel.Record) {
	t.Helper()
	for _, store := range s {
		if got, err := store.Get(t.Context(), want.Kind, want.Name); err != nil || !cmp.Equal(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		for of, want := range map[string][]tunnel.Record{"": {want}, kind.of: {want}, "other": nil} {
			if got, err := store.List(t.Context(), kind.first.Kind, of); err != nil || len(got) != len(want) || len(got) == 1 && !cmp.Equal(got, want) {
				t.Errorf("list of %q: got %+v, %v, want %+v", of, got, err, want)
			}
		}
	}
}

// testCount has many count at the same time: nobody's step is lost.
func testCount(t *testing.T, s Pair) {
	ctx, each := t.Context(), 4
	if err := s[0].Create(ctx, tunnel.Record{Kind: tunnel.KindValue, Name: "count", Data: []byte("0")}); err != nil {
		t.Fatal(err)
	}
	var counting sync.WaitGroup
	for n := range 4 {
		counting.Go(func() {
			for steps := 0; steps < each; {
				r, err := s[n%2].Get(ctx, tunnel.KindValue, "count")
				if err != nil {
					t.Error(err)
					return
				}
				count, _ := strconv.Atoi(string(r.Data))
				r.Data = []byte(strconv.Itoa(count + 1))
				switch err := s[n%2].Replace(ctx, r); {
				case err == nil:
					steps++
				case !errors.Is(err, tunnel.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	counting.Wait()
	if r, err := s[0].Get(ctx, tunnel.KindValue, "count"); err != nil || string(r.Data) != "16" {
		t.Errorf("got %q, %v, want 16", r.Data, err)
	}
}
