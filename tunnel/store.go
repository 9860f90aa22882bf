package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Store keeps small records: the tokens and revocations of a server, and what a program
// keeps beside them. It decides nothing: [Records] does, by Replace, so that of several
// servers that share a Store one wins. [MemoryStore], [DirStore] and the SecretStore of
// tunnel/kubernetes are Stores. It is safe for concurrent use. The Server holds no lock
// while it calls a method.
//
// The Server asks for a token only if the Authority has signed it, and once a minute
// for each token and key: strangers can't keep a Store busy.
type Store interface {
	// Get returns the record. If there is none, the error is fs.ErrNotExist.
	Get(ctx context.Context, kind Kind, name string) (Record, error)
	// Create adds a record. If there is one of this Kind and Name, the error is fs.ErrExist.
	Create(ctx context.Context, r Record) error
	// Replace gives the record of this Kind and Name other Data, if its Version still is
	// that of r. If it is not, or the record is gone, the error is ErrConflict.
	Replace(ctx context.Context, r Record) error
	// Delete removes the record of this Kind and Name. If r has a Version and the record
	// has another one, the error is ErrConflict. There is no error if there is no record.
	Delete(ctx context.Context, r Record) error
	// List returns the records of a kind, in any order. If of is not empty, it returns
	// those whose Cluster it is; of KindValue, those whose Name begins with it. Records
	// that were created before the call are there, whichever server did that.
	List(ctx context.Context, kind Kind, of string) ([]Record, error)
	// Watch calls changed for each record of a kind, and again when it changes, until ctx
	// ends. It calls it with a nil Data when the record is gone. The error is about a field
	// of the Store, or nil.
	Watch(ctx context.Context, kind Kind, changed func(Record)) error
}

// Kind says what a Record is. A Store keeps these four.
type Kind string

const (
	KindToken   Kind = "token"   // a Token; its ID is the Name
	KindRevoked Kind = "revoked" // a revocation; the Name is a hash of the Identity
	KindPayload Kind = "payload" // the Name is a cluster, a line feed, and the payload's name
	KindValue   Kind = "value"   // anything else of a program
)

// Record is a small record in a [Store].
type Record struct {
	Kind    Kind
	Name    string // of tokens, payloads and values any text; see Kind
	Cluster string // that it is about; "" for a value
	Data    []byte // not nil
	Version string // is set by the Store
}

// ErrConflict is the error if a record in a [Store] is not what it was when it was read.
var ErrConflict = errors.New("tunnel: store: another server has changed the record")

var errNoRecord = fmt.Errorf("tunnel: store: record: %w", fs.ErrNotExist)

// MemoryStore is a [Store] in memory: for tests, and for a single server whose tokens
// and revocations may be lost when it restarts. The zero value is an empty Store.
type MemoryStore struct {
	mu      sync.Mutex // guards the fields below
	records map[recordKey]Record
	changes int // so far
}

type recordKey struct {
	kind Kind
	name string
}

var _ Store = (*MemoryStore)(nil)

// Get implements [Store].
func (s *MemoryStore) Get(_ context.Context, kind Kind, name string) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[recordKey{kind, name}]
	if !ok {
		return r, errNoRecord
	}
	return r, nil
}

// Create implements [Store].
func (s *MemoryStore) Create(_ context.Context, r Record) error {
	return s.change(r, func(_ Record, found bool) error {
		if found {
			return fmt.Errorf("tunnel: store: record: %w", fs.ErrExist)
		}
		return nil
	})
}

// Replace implements [Store].
func (s *MemoryStore) Replace(_ context.Context, r Record) error {
	return s.change(r, func(old Record, found bool) error {
		if !found || old.Version != r.Version {
			return ErrConflict
		}
		return nil
	})
}

// Delete implements [Store].
func (s *MemoryStore) Delete(_ context.Context, r Record) error {
	r.Data = nil
	return s.change(r, func(old Record, found bool) error {
		if found && r.Version != "" && old.Version != r.Version {
			return ErrConflict
		}
		return nil
	})
}

// change keeps the record, or removes it if it has no Data, unless check objects.
func (s *MemoryStore) change(r Record, check func(old Record, found bool) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := recordKey{r.Kind, r.Name}
	old, found := s.records[key]
	if err := check(old, found); err != nil {
		return err
	}
	if s.records == nil {
		s.records = map[recordKey]Record{}
	}
	s.changes++
	r.Data, r.Version = bytes.Clone(r.Data), fmt.Sprint(s.changes)
	if s.records[key] = r; r.Data == nil {
		delete(s.records, key)
	}
	return nil
}

// List implements [Store].
func (s *MemoryStore) List(_ context.Context, kind Kind, of string) ([]Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(s.records)), func(r Record) bool { return r.Kind != kind || !r.IsOf(of) }), nil
}

// IsOf reports whether [Store.List] with this argument returns the record.
func (r Record) IsOf(of string) bool {
	return of == "" || of == r.Cluster || r.Kind == KindValue && strings.HasPrefix(r.Name, of)
}

// Watch implements [Store]. It looks ten times a second.
func (s *MemoryStore) Watch(ctx context.Context, kind Kind, changed func(Record)) error {
	pollChanges(ctx, s, kind, time.Second/10, changed)
	return nil
}

// pollChanges is Watch for a Store that tells of nothing.
func pollChanges(ctx context.Context, s Store, kind Kind, every time.Duration, changed func(Record)) {
	told, timer := map[string]Record{}, time.NewTicker(every)
	defer timer.Stop()
	for ctx.Err() == nil {
		all, err := s.List(ctx, kind, "")
		gone := maps.Clone(told)
		for _, r := range all {
			delete(gone, r.Name)
			if was, ok := told[r.Name]; !ok || was.Version != r.Version {
				told[r.Name] = r
				changed(r)
			}
		}
		for name, r := range gone {
			if err == nil {
				delete(told, name)
				changed(Record{Kind: kind, Name: name, Cluster: r.Cluster})
			}
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}
