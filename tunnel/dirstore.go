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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// DirStore is a [Store] in files. Several servers may share the directory if the file
// system has hard links. Files are written atomically, also if the process crashes.
type DirStore struct {
	// Dir is the directory; nobody but the servers may have access. Required. It must
	// exist: if it were made, a volume that is not mounted would be a Store in which
	// nobody is revoked.
	Dir string
}

var _ Store = DirStore{}

// A token has a file, and one more for each key, so that claiming it needs no lock: the
// first that creates the file of a number has the number's place.
//
// A revoked agent has a file. A cluster has a folder, with a file for each time that all
// its agents were revoked; the time is its name.
const (
	tokensDir   = "tokens"
	revokedDir  = "revoked"
	tokenExt    = ".json"
	keyExt      = ".key"
	revokedExt  = ".json"
	clustersExt = ".clusters"
)

type tokenFile struct {
	Cluster string    `json:"cluster"`
	Agents  int       `json:"agents,omitempty"`
	After   time.Time `json:"after,omitzero"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

type revokedFile struct {
	Cluster string    `json:"cluster"`
	Agent   string    `json:"agent,omitempty"`
	At      time.Time `json:"at"`
}

// AddToken implements [Store].
func (s DirStore) AddToken(ctx context.Context, t Token) error {
	dir, err := s.openDir(tokensDir)
	if err != nil {
		return err
	}
	if !wire.IsTokenID(t.ID) || len(t.Keys) > 0 {
		return errors.New("tunnel: store: not a new token")
	}
	s.removeForgotten(ctx, dir, t.Created)
	text, err := json.Marshal(tokenFile{t.Cluster, t.Agents, t.After, t.Created, t.Expires})
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
	t := Token{ID: id, Cluster: f.Cluster, Agents: f.Agents, After: f.After, Created: f.Created, Expires: f.Expires}
	for t.agentsLeft() > 0 {
		key, err := os.ReadFile(filepath.Join(dir, keyFile(id, len(t.Keys))))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return t, nil
		case err != nil:
			return Token{}, storeError(err)
		}
		t.Keys = append(t.Keys, string(key))
	}
	return t, nil
}

// keyFile returns the name of the file of the key in this place, from 0 on.
func keyFile(id string, place int) string {
	if place == 0 {
		return id + keyExt
	}
	return fmt.Sprintf("%s.%d%s", id, place+1, keyExt)
}

// ClaimToken implements [Store].
func (s DirStore) ClaimToken(_ context.Context, id, key string) (Token, error) {
	dir, err := s.openDir(tokensDir)
	if err != nil {
		return Token{}, err
	}
	for {
		t, err := readToken(dir, id)
		if err != nil || t.agentsLeft() == 0 || slices.Contains(t.Keys, key) {
			return t, err
		}
		err = createFile(dir, keyFile(id, len(t.Keys)), []byte(key))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return Token{}, storeError(err)
		}
		// Read it again: with our key, or with that of a faster caller.
	}
}

// Tokens implements [Store]. A token whose file is damaged is left out.
func (s DirStore) Tokens(ctx context.Context, cluster string) (all []Token, err error) {
	dir, err := s.openDir(tokensDir)
	if err != nil {
		return nil, err
	}
	err = eachToken(ctx, dir, func(t Token) {
		if t.Cluster == cluster {
			all = append(all, t)
		}
	})
	return all, storeError(err)
}

// eachToken calls f with each token that can be read.
func eachToken(ctx context.Context, dir string, f func(Token)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), tokenExt)
		if !ok {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if t, err := readToken(dir, id); err == nil {
			f(t)
		}
	}
	return nil
}

// RemoveToken implements [Store].
func (s DirStore) RemoveToken(_ context.Context, id string) error {
	dir, err := s.openDir(tokensDir)
	if err != nil || !wire.IsTokenID(id) {
		return err
	}
	return storeError(removeToken(dir, id))
}

// removeToken removes the files of a token, that of the token first: with fewer keys it
// could be used again. Files of keys that a crash leaves are removed with the next token
// that is forgotten.
func removeToken(dir, id string) error {
	if err := os.Remove(filepath.Join(dir, id+tokenExt)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for place := 0; ; place++ {
		err := os.Remove(filepath.Join(dir, keyFile(id, place)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
	}
}

// removeForgotten removes tokens that expired long ago, and keys without a token. Those
// that can't be read or removed stay: they can't be used any more.
func (s DirStore) removeForgotten(ctx context.Context, dir string, now time.Time) {
	_ = eachToken(ctx, dir, func(t Token) {
		if t.isForgotten(now) {
			_ = removeToken(dir, t.ID)
		}
	})
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		name := entry.Name()
		id, _, _ := strings.Cut(name, ".")
		if !strings.HasSuffix(name, keyExt) || ctx.Err() != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, id+tokenExt)); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(filepath.Join(dir, name))
		}
	}
}

// Revoke implements [Store].
func (s DirStore) Revoke(_ context.Context, id Identity, now time.Time) (time.Time, error) {
	dir, err := s.openDir(revokedDir)
	if err != nil {
		return time.Time{}, err
	}
	if id.Agent == "" {
		at, err := revokeCluster(filepath.Join(dir, hashName(id)+clustersExt), id.Cluster, now)
		return at, storeError(err)
	}
	err = createRecord(dir, hashName(id)+revokedExt, revokedFile{id.Cluster, id.Agent, now})
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return now, storeError(err)
}

// revokeCluster creates a file for the time in the cluster's folder.
func revokeCluster(dir, cluster string, now time.Time) (at time.Time, err error) {
	if err := os.Mkdir(dir, privateDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return at, err
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return at, err
	}
	for {
		latest, err := latestIn(dir)
		if err != nil {
			return at, err
		}
		at = revocationTime(now, latest)
		err = createRecord(dir, strconv.FormatInt(at.UnixMilli(), 10)+revokedExt, revokedFile{Cluster: cluster, At: at})
		if !errors.Is(err, fs.ErrExist) { // another server may have been faster
			return at, err
		}
	}
}

// latestIn returns the latest time in a cluster's folder; zero if there is none.
func latestIn(dir string) (latest time.Time, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return latest, nil
	}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), revokedExt)
		ms, bad := strconv.ParseInt(name, 10, 64)
		if at := time.UnixMilli(ms).UTC(); ok && bad == nil && at.After(latest) {
			latest = at
		}
	}
	return latest, err
}

func createRecord(dir, name string, record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return createFile(dir, name, text)
}

// Revoked implements [Store].
func (s DirStore) Revoked(_ context.Context, id Identity) (time.Time, error) {
	dir, err := s.openDir(revokedDir)
	if err != nil {
		return time.Time{}, err
	}
	if id.Agent == "" {
		at, err := latestIn(filepath.Join(dir, hashName(id)+clustersExt))
		return at, storeError(err)
	}
	info, err := os.Stat(filepath.Join(dir, hashName(id)+revokedExt))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, storeError(err)
	}
	return info.ModTime(), nil
}

// hashName returns the name of what is recorded of the identity. It is a hash, since an
// identity may contain slashes and dots.
func hashName(id Identity) string {
	sum := sha256.Sum256([]byte(id.URI().String()))
	return hex.EncodeToString(sum[:])
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
