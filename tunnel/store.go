package tunnel

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"
)

// Store keeps the tokens and revocations of a server. It decides nothing: the Server
// compares times, clusters and keys. If several servers share one, its methods are
// atomic between them. It is safe for concurrent use. The Server holds no lock while
// it calls a method.
//
// The Server asks for a token only if the Authority has signed it, and once a minute
// for each token and key: strangers can't keep a Store busy.
type Store interface {
	// AddToken adds a new token. It may remove tokens that expired a week or longer
	// before t.Created.
	AddToken(ctx context.Context, t Token) error
	// ClaimToken atomically adds the key to the token's Keys, unless it is there or
	// there are as many as Agents already, and returns the token as it then is. If there
	// is no such token, the error is fs.ErrNotExist.
	ClaimToken(ctx context.Context, id, key string) (Token, error)
	// Tokens returns the cluster's tokens, in any order: all that AddToken has not
	// removed yet. It returns those that were added before the call, by any server.
	Tokens(ctx context.Context, cluster string) ([]Token, error)
	// RemoveToken removes a token. There is no error if there is none.
	RemoveToken(ctx context.Context, id string) error
	// Revoke records that the agent was revoked, for good: an agent that enrols with
	// another key gets another Identity. If id has no Agent, it records that all agents
	// of the cluster were, and returns the time of that: now, or a millisecond after
	// the latest one that is recorded if that is later. All times are whole milliseconds.
	// What it returns for an agent is not used.
	Revoke(ctx context.Context, id Identity, now time.Time) (at time.Time, err error)
	// Revoked returns the latest time that Revoke recorded for exactly this Identity;
	// zero if there is none. For an agent it may return any other time that is not zero.
	Revoked(ctx context.Context, id Identity) (at time.Time, err error)
}

// Token is the record of a token in a [Store]. It contains no secret: nobody can
// make a token from it without the key of an [Authority].
type Token struct {
	// ID names the token: 16 of the characters a-z and 2-7.
	ID string
	// Cluster is the cluster for which the token enrols agents.
	Cluster string
	// Agents is how many agents may enrol with the token. Zero means one.
	Agents int
	// After is when all agents of the cluster were revoked before the token was made,
	// the last time; zero if they never were. A later revocation makes it void.
	After time.Time
	// Created is when the token was made.
	Created time.Time
	// Expires is when the token expires, by the server's clock.
	Expires time.Time
	// Keys are the hex fingerprints of the keys that were enrolled with the token.
	Keys []string
}

// agentsLeft returns how many more agents may enrol with the token.
func (t Token) agentsLeft() int { return max(max(t.Agents, 1)-len(t.Keys), 0) }

// tokenGrace is how long a token is kept after it has expired, so that an agent that
// uses it learns that it expired.
const tokenGrace = 7 * 24 * time.Hour

func (t Token) isForgotten(now time.Time) bool { return now.Sub(t.Expires) >= tokenGrace }

// revocationTime returns the time of a revocation that comes after the latest one.
func revocationTime(now, latest time.Time) time.Time {
	if now.After(latest) {
		return now
	}
	return latest.Add(time.Millisecond)
}

// MemoryStore is a [Store] in memory: for tests, and for a single server whose tokens
// and revocations may be lost when it restarts. The zero value is an empty Store.
type MemoryStore struct {
	mu      sync.Mutex // guards the fields below
	tokens  map[string]Token
	revoked map[Identity]time.Time
}

var _ Store = (*MemoryStore)(nil)

// AddToken implements [Store].
func (s *MemoryStore) AddToken(_ context.Context, t Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, old := range s.tokens {
		if old.isForgotten(t.Created) {
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
	if t.agentsLeft() > 0 && !slices.Contains(t.Keys, key) {
		t.Keys = append(slices.Clip(t.Keys), key) // callers have the former slice
		s.tokens[id] = t
	}
	return t, nil
}

// Tokens implements [Store].
func (s *MemoryStore) Tokens(_ context.Context, cluster string) (all []Token, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tokens {
		if t.Cluster == cluster {
			all = append(all, t)
		}
	}
	return all, nil
}

// RemoveToken implements [Store].
func (s *MemoryStore) RemoveToken(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, id)
	return nil
}

// Revoke implements [Store].
func (s *MemoryStore) Revoke(_ context.Context, id Identity, now time.Time) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked == nil {
		s.revoked = map[Identity]time.Time{}
	}
	s.revoked[id] = revocationTime(now, s.revoked[id])
	return s.revoked[id], nil
}

// Revoked implements [Store].
func (s *MemoryStore) Revoked(_ context.Context, id Identity) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked[id], nil
}

var errNoToken = fmt.Errorf("tunnel: store: token %w", fs.ErrNotExist)
