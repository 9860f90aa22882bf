package tunnel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
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

func (t Token) isForgotten(now time.Time) bool { return now.Sub(t.Expires) >= tokenGrace }

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

// DirStore is a [Store] in files. Any number of servers may share the
// directory, on a file system that knows hard links; each file is whole or
// not there, also after a crash.
type DirStore struct {
	// Dir is the directory, of the servers alone. Required. It has to exist: a
	// volume that is not there is an error, not a Store where nobody is revoked.
	Dir string
}

var _ Store = DirStore{}

// A token is two files, so that the one who claims it needs no lock: the first
// to create the second file has it.
const (
	tokensDir  = "tokens"
	revokedDir = "revoked"
	tokenExt   = ".json"
	keyExt     = ".key"
)

type tokenFile struct {
	Cluster string    `json:"cluster"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

type revokedFile struct {
	Cluster string    `json:"cluster"`
	Agent   string    `json:"agent"`
	At      time.Time `json:"at"`
}

// AddToken implements [Store].
func (s DirStore) AddToken(ctx context.Context, t Token) error {
	dir, err := s.openDir(tokensDir)
	if err != nil {
		return err
	}
	if !wire.IsTokenID(t.ID) || t.Key != "" {
		return errors.New("tunnel: store: not a new token")
	}
	s.removeForgotten(ctx, dir, t.Created)
	text, err := json.Marshal(tokenFile{t.Cluster, t.Created, t.Expires})
	if err == nil {
		err = createFile(dir, t.ID+tokenExt, text)
	}
	return storeError(err)
}

// readToken is safe with any id.
func readToken(dir, id string) (Token, error) {
	if !wire.IsTokenID(id) {
		return Token{}, errNoToken
	}
	text, err := os.ReadFile(filepath.Join(dir, id+tokenExt))
	if err != nil {
		return Token{}, storeError(err)
	}
	var f tokenFile
	if err := json.Unmarshal(text, &f); err != nil {
		return Token{}, fmt.Errorf("tunnel: store: %s%s is damaged", id, tokenExt)
	}
	key, err := os.ReadFile(filepath.Join(dir, id+keyExt))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Token{}, storeError(err)
	}
	return Token{ID: id, Cluster: f.Cluster, Created: f.Created, Expires: f.Expires, Key: string(key)}, nil
}

// ClaimToken implements [Store].
func (s DirStore) ClaimToken(_ context.Context, id, key string) (Token, error) {
	dir, err := s.openDir(tokensDir)
	if err != nil {
		return Token{}, err
	}
	t, err := readToken(dir, id)
	if err != nil || t.Key != "" {
		return t, err
	}
	err = createFile(dir, id+keyExt, []byte(key))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return Token{}, storeError(err)
	}
	return readToken(dir, id) // with our key, or that of who was faster
}

// removeForgotten removes tokens that ended long ago. What cannot be read or removed
// stays; it cannot be spent any more.
func (s DirStore) removeForgotten(ctx context.Context, dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), tokenExt)
		if !ok || ctx.Err() != nil {
			continue
		}
		if t, err := readToken(dir, id); err == nil && t.isForgotten(now) {
			_ = os.Remove(filepath.Join(dir, id+keyExt)) // first: alone it would stay for ever
			_ = os.Remove(filepath.Join(dir, id+tokenExt))
		}
	}
}

// Revoke implements [Store].
func (s DirStore) Revoke(_ context.Context, id Identity) error {
	dir, err := s.openDir(revokedDir)
	if err != nil {
		return err
	}
	text, err := json.Marshal(revokedFile{id.Cluster, id.Agent, time.Now().UTC()})
	if err == nil {
		err = createFile(dir, revokedName(id), text)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return storeError(err)
}

// Revoked implements [Store].
func (s DirStore) Revoked(_ context.Context, id Identity) (bool, error) {
	dir, err := s.openDir(revokedDir)
	if err != nil {
		return false, err
	}
	switch _, err := os.Stat(filepath.Join(dir, revokedName(id))); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, storeError(err)
	}
	return true, nil
}

// revokedName is no part of the identity, which may hold slashes and dots.
func revokedName(id Identity) string {
	sum := sha256.Sum256([]byte(id.URI().String()))
	return hex.EncodeToString(sum[:]) + ".json"
}

// openDir returns a directory below Dir, and makes it if it is missing.
func (s DirStore) openDir(name string) (string, error) {
	if s.Dir == "" {
		return "", configError("directory store: field Dir is required")
	}
	dir := filepath.Join(s.Dir, name)
	if err := os.Mkdir(dir, privateDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", storeError(err)
	}
	return dir, nil
}

func storeError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tunnel: store: %w", err)
}
