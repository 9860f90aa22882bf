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
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

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
	dir, err := s.dir(tokensDir)
	if err != nil {
		return err
	}
	if !wire.IsTokenID(t.ID) || t.Key != "" {
		return errors.New("tunnel: store: not a new token")
	}
	s.forget(ctx, dir, t.Created)
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
	dir, err := s.dir(tokensDir)
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

// forget removes tokens that ended long ago. What cannot be read or removed
// stays; it cannot be spent any more.
func (s DirStore) forget(ctx context.Context, dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), tokenExt)
		if !ok || ctx.Err() != nil {
			continue
		}
		if t, err := readToken(dir, id); err == nil && t.forgotten(now) {
			_ = os.Remove(filepath.Join(dir, id+keyExt)) // first: alone it would stay for ever
			_ = os.Remove(filepath.Join(dir, id+tokenExt))
		}
	}
}

// Revoke implements [Store].
func (s DirStore) Revoke(_ context.Context, id Identity) error {
	dir, err := s.dir(revokedDir)
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
	dir, err := s.dir(revokedDir)
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

// dir returns a directory below Dir, and makes it if it is missing.
func (s DirStore) dir(name string) (string, error) {
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
