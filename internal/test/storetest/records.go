package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/tunnel"
)

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
