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

// Store keeps the tokens and revocations of a server. It decides nothing: the Server
// compares times, clusters and keys. If several servers share one, its methods are
// atomic between them. It is safe for concurrent use. The Server holds no lock while
// it calls a method.
//
// The Server asks for a token only if the Authority has signed it, and once a minute
// for each token: strangers can't keep a Store busy.
type Store interface {
	// AddToken adds a new token. It may remove tokens that expired a week or longer
	// before t.Created.
	AddToken(ctx context.Context, t Token) error
	// ClaimToken atomically sets the token's Key to key if it is empty, and returns
	// the token, with the key that came first. If there is no such token, the error
	// is fs.ErrNotExist.
	ClaimToken(ctx context.Context, id, key string) (Token, error)
	// Revoke records that the agent may not connect or renew any more. The identity
	// is never given again: an agent that enrols with another key gets another one.
	Revoke(ctx context.Context, id Identity) error
	// Revoked reports whether the agent was revoked.
	Revoked(ctx context.Context, id Identity) (bool, error)
}

// Token is the record of a token in a [Store]. It contains no secret: nobody can
// make a token from it without the key of an [Authority].
type Token struct {
	// ID names the token: 16 of the characters a-z and 2-7.
	ID string
	// Cluster is the cluster for which the token enrols an agent.
	Cluster string
	// Created is when the token was made.
	Created time.Time
	// Expires is when the token expires, by the server's clock.
	Expires time.Time
	// Key is the hex fingerprint of the key that was enrolled with the token; empty
	// if none was.
	Key string
}

// tokenGrace is how long a token is kept after it has expired, so that an agent that
// uses it learns that it expired.
const tokenGrace = 7 * 24 * time.Hour

func (t Token) isForgotten(now time.Time) bool { return now.Sub(t.Expires) >= tokenGrace }

// MemoryStore is a [Store] in memory: for tests, and for a single server whose tokens
// and revocations may be lost when it restarts. The zero value is an empty Store.
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

// DirStore is a [Store] in files. Several servers may share the directory if the file
// system has hard links. Files are written atomically, also if the process crashes.
type DirStore struct {
	// Dir is the directory; nobody but the servers may have access. Required. It must
	// exist: if it were made, a volume that is not mounted would be a Store in which
	// nobody is revoked.
	Dir string
}

var _ Store = DirStore{}

// A token has two files, so that claiming it needs no lock: the key of the first that
// creates the second file counts.
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
	return readToken(dir, id) // with our key, or with that of a faster caller
}

// removeForgotten removes tokens that expired long ago. Those that can't be read or
// removed stay: they can't be used any more.
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
			_ = os.Remove(filepath.Join(dir, id+keyExt)) // first: without the other file it would never be removed
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

// revokedName returns the name of the file. It is a hash, since an identity may contain
// slashes and dots.
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
