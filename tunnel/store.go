package tunnel

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// Store keeps a server's enrolment state. It decides nothing: the Server
// compares times, clusters and keys. Several servers may share one; then its
// methods are atomic between them. It is safe for concurrent use. No lock of
// the Server's is held while it is called.
//
// The Server asks it about a token only if the Authority has signed the token,
// and once a minute for each: strangers can't keep it busy.
type Store interface {
	// AddToken keeps a new token. It may forget those that expired a week or
	// longer before t.Created.
	AddToken(ctx context.Context, t Token) error
	// ClaimToken sets the token's Key to key if it is empty, atomically, and
	// returns the token as it then is: with the key that came first. If there
	// is no such token, the error is fs.ErrNotExist.
	ClaimToken(ctx context.Context, id, key string) (Token, error)
	// Revoke keeps the agent from connecting and renewing from now on. The
	// identity is never given again: an agent that enrols with another key has
	// another.
	Revoke(ctx context.Context, id Identity) error
	// Revoked reports whether the agent was revoked.
	Revoked(ctx context.Context, id Identity) (bool, error)
}

// Token is what a [Store] keeps of a token. Nothing in it is a secret, and
// nobody can make a token from it: that takes the key of an [Authority].
type Token struct {
	// ID names the token: 16 of the characters a-z and 2-7.
	ID string
	// Cluster is the one whose agent the token enrols.
	Cluster string
	// Created is when the token was made.
	Created time.Time
	// Expires is when the token ends, by the server's clock.
	Expires time.Time
	// Key is the hex fingerprint of the key that the token was spent for;
	// empty if it was not spent yet.
	Key string
}

// tokenGrace is how long a token is remembered past its end, so that whoever
// comes with it learns that it expired.
const tokenGrace = 7 * 24 * time.Hour

func (t Token) forgotten(now time.Time) bool { return now.Sub(t.Expires) >= tokenGrace }

// MemoryStore is a [Store] that ends with the process: for tests, and for one
// server that can do without tokens and revocations after a restart. The zero
// value is empty and ready.
type MemoryStore struct {
	mu      sync.Mutex // guards the fields below
	tokens  map[string]Token
	revoked map[Identity]struct{}
}

var _ Store = (*MemoryStore)(nil)

// AddToken implements [Store].
func (s *MemoryStore) AddToken(_ context.Context, t Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, old := range s.tokens {
		if old.forgotten(t.Created) {
			delete(s.tokens, id)
		}
	}
	if _, ok := s.tokens[t.ID]; ok {
		return fmt.Errorf("tunnel: store: token %w", fs.ErrExist)
	}
	if s.tokens == nil {
		s.tokens = map[string]Token{}
	}
	s.tokens[t.ID] = t
	return nil
}

// ClaimToken implements [Store].
func (s *MemoryStore) ClaimToken(_ context.Context, id, key string) (Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[id]
	if !ok {
		return Token{}, errNoToken
	}
	if t.Key == "" {
		t.Key = key
		s.tokens[id] = t
	}
	return t, nil
}

// Revoke implements [Store].
func (s *MemoryStore) Revoke(_ context.Context, id Identity) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked == nil {
		s.revoked = map[Identity]struct{}{}
	}
	s.revoked[id] = struct{}{}
	return nil
}

// Revoked implements [Store].
func (s *MemoryStore) Revoked(_ context.Context, id Identity) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.revoked[id]
	return ok, nil
}

var errNoToken = fmt.Errorf("tunnel: store: token %w", fs.ErrNotExist)
