package tunnel

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/smallfile"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// DirStore is a [Store] in files. Several servers may share the directory if the file
// system has hard links. Files are written atomically, also if the process crashes.
type DirStore struct {
	// Dir is the directory; nobody but the servers may have access. Required. It must
	// exist: if it were made, a volume that is not mounted would be a Store in which
	// nobody is revoked.
	Dir string
	// Interval is the time between two looks of Watch. 2 seconds if 0.
	Interval time.Duration
}

var _ Store = DirStore{}

// The files of a record. Where several servers write at once, the first that creates a
// file with the next number wins, so that no lock is needed.
//
//	value     NAME
//	payload   payloads/=CLUSTER/=NAME, both escaped
//	token     tokens/ID.json, and for each key ID.key, ID.2.key, ...; the Version is their count
//	revoked   revoked/HASH.json of an agent; HASH.clusters/MILLISECONDS.json of a cluster, of
//	          which the last counts; the milliseconds are the Version
const (
	tokensDir   = "tokens"
	revokedDir  = "revoked"
	payloadsDir = "payloads"
	recordExt   = ".json"
	keyExt      = ".key"
	clustersExt = ".clusters"

	maxMebibytes = 1 // of a file: what is longer was written by nobody of ours
)

// pathOf returns the folder and the name of a record's file, without the ending.
func (s DirStore) pathOf(kind Kind, name string) (dir, file string, err error) {
	if s.Dir == "" {
		return "", "", configError("directory store: field Dir is required")
	}
	dir, file = s.Dir, name
	switch kind {
	case KindToken:
		dir = filepath.Join(s.Dir, tokensDir)
	case KindRevoked:
		dir = filepath.Join(s.Dir, revokedDir)
	case KindPayload:
		cluster, payload, _ := strings.Cut(name, "\n")
		dir, file = filepath.Join(s.Dir, payloadsDir, escapeName(cluster)), escapeName(payload)
	}
	if kind == KindToken && !wire.IsTokenID(name) || name == "" || strings.ContainsAny(file, `/\`) || strings.HasPrefix(file, ".") {
		return "", "", errNoRecord
	}
	return dir, file, nil
}

// escapeName makes a file name of any name, such as "..".
func escapeName(name string) string { return "=" + url.PathEscape(name) }

// wrapError keeps fs.ErrNotExist only if the directory is there.
func (s DirStore) wrapError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if _, missing := os.Stat(s.Dir); missing != nil {
			return fmt.Errorf("tunnel: store: %v", missing) // not fs.ErrNotExist: nothing is known
		}
	}
	if err == nil || errors.Is(err, ErrConflict) {
		return err
	}
	return fmt.Errorf("tunnel: store: %w", err)
}

// Get implements [Store].
func (s DirStore) Get(_ context.Context, kind Kind, name string) (Record, error) {
	dir, file, err := s.pathOf(kind, name)
	if err != nil {
		return Record{}, err
	}
	r, err := readRecord(kind, dir, file)
	r.Name = name
	return r, s.wrapError(err)
}

// readRecord reads the record that has this file, or begins with it.
func readRecord(kind Kind, dir, file string) (r Record, err error) {
	switch kind {
	case KindToken:
		return readToken(dir, file)
	case KindRevoked:
		latest, err := latestVersion(dir, file)
		switch {
		case err != nil:
			return r, err
		case latest > 0:
			return readJSON(kind, filepath.Join(dir, file+clustersExt), strconv.FormatInt(latest, 10))
		}
		return readJSON(kind, dir, file)
	}
	data, err := smallfile.Read(filepath.Join(dir, file), maxMebibytes)
	r = Record{Kind: kind, Name: file, Data: append([]byte{}, data...), Version: contentVersion(data)}
	if kind == KindPayload {
		name, wrong := url.PathUnescape(strings.TrimPrefix(file, "="))
		cluster, wrongDir := url.PathUnescape(strings.TrimPrefix(filepath.Base(dir), "="))
		r.Name, r.Cluster, err = cluster+"\n"+name, cluster, cmp.Or(err, wrong, wrongDir)
	}
	return r, err
}

func contentVersion(data []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// readJSON reads a file with an object that names its cluster.
func readJSON(kind Kind, dir, name string) (Record, error) {
	r := Record{Kind: kind, Name: name, Version: name}
	var err error
	r.Data, err = smallfile.Read(filepath.Join(dir, name+recordExt), maxMebibytes)
	var about struct{ Cluster string }
	_ = json.Unmarshal(r.Data, &about) // Records says that it is damaged
	r.Cluster = about.Cluster
	return r, err
}

// readToken returns the record with the keys in it.
func readToken(dir, id string) (Record, error) {
	r, err := readJSON(KindToken, dir, id)
	var t Token
	if err != nil || json.Unmarshal(r.Data, &t) != nil {
		return r, err
	}
	t.ID = id // older versions did not write it
	for t.agentsLeft() > 0 && err == nil {
		var key []byte
		if key, err = smallfile.Read(filepath.Join(dir, keyFile(id, len(t.Keys))), maxMebibytes); err == nil {
			t.Keys = append(t.Keys, string(key))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	r, err = t.record()
	r.Version = strconv.Itoa(len(t.Keys))
	return r, err
}

// keyFile returns the name of the file of the key in this place, from 0 on.
func keyFile(id string, place int) string {
	if place == 0 {
		return id + keyExt
	}
	return fmt.Sprintf("%s.%d%s", id, place+1, keyExt)
}

// latestVersion returns when a cluster was revoked last, in milliseconds; 0 if it never was.
func latestVersion(dir, file string) (latest int64, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, file+clustersExt))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), tempPrefix) {
			continue
		}
		ms, wrong := strconv.ParseInt(strings.TrimSuffix(entry.Name(), recordExt), 10, 64)
		if wrong != nil {
			return 0, fmt.Errorf("%s%s has a file %q that is no revocation", file, clustersExt, entry.Name())
		}
		latest = max(latest, ms)
	}
	return latest, err
}

// Create implements [Store].
func (s DirStore) Create(_ context.Context, r Record) error {
	dir, file, err := s.pathOf(r.Kind, r.Name)
	if err != nil {
		return err
	}
	if err := s.makeDir(dir); err != nil {
		return s.wrapError(err)
	}
	switch r.Kind {
	case KindToken:
		file += recordExt
	case KindRevoked:
		if latest, err := latestVersion(dir, file); err != nil || latest > 0 {
			return s.wrapError(cmp.Or(err, fs.ErrExist))
		}
		if dir, file, err = s.placeRevoked(dir, file, r); err != nil {
			return s.wrapError(err)
		}
	}
	return s.wrapError(createFile(dir, file, r.Data))
}

// placeRevoked returns where a revocation is written, and makes the folder of a cluster.
func (s DirStore) placeRevoked(dir, file string, r Record) (string, string, error) {
	id, v, err := parseRevocation(r)
	if err != nil || id.Agent != "" {
		return dir, file + recordExt, err
	}
	dir = filepath.Join(dir, file+clustersExt)
	return dir, strconv.FormatInt(v.At.UnixMilli(), 10) + recordExt, s.makeDir(dir)
}

// makeDir makes a directory below Dir if it is missing.
func (s DirStore) makeDir(dir string) error {
	if dir == s.Dir {
		return nil
	}
	err := os.Mkdir(dir, privateDir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.makeDir(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, privateDir)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return cmp.Or(err, syncDir(filepath.Dir(dir)))
}

// Replace implements [Store].
func (s DirStore) Replace(ctx context.Context, r Record) error {
	dir, file, err := s.pathOf(r.Kind, r.Name)
	if err != nil {
		return err
	}
	old, err := readRecord(r.Kind, dir, file)
	switch {
	case err != nil:
	case old.Version != r.Version:
		err = ErrConflict
	case r.Kind == KindToken:
		err = addKey(dir, file, r)
	case r.Kind == KindRevoked:
		if dir, file, err = s.placeRevoked(dir, file, r); err == nil {
			err = createFile(dir, file, r.Data)
		}
	default:
		err = replaceLocked(r, dir, file)
	}
	if err = s.wrapError(err); errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return ErrConflict
	}
	return err
}

// addKey adds the last key of the record.
func addKey(dir, id string, r Record) error {
	t, err := parseToken(r)
	if n := len(t.Keys); err == nil && n > 0 {
		err = createFile(dir, keyFile(id, n-1), []byte(t.Keys[n-1]))
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, id+recordExt)) // it may have been removed meanwhile
	}
	return err
}

// lockForgets is how long the lock that a crash left holds up others: the work takes some
// milliseconds.
const lockForgets = time.Minute

// replaceLocked replaces a file, if it still has the Version.
func replaceLocked(r Record, dir, file string) error {
	lock := filepath.Join(dir, tempPrefix+"lock-"+file)
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if info, gone := os.Stat(lock); gone == nil && time.Since(info.ModTime()) > lockForgets {
			_ = os.Remove(lock)
		}
		return err
	}
	defer os.Remove(lock)
	f.Close()
	if data, err := smallfile.Read(filepath.Join(dir, file), maxMebibytes); err != nil || contentVersion(data) != r.Version {
		return cmp.Or(err, ErrConflict)
	}
	return replaceFile(dir, file, r.Data)
}

// Delete implements [Store].
func (s DirStore) Delete(_ context.Context, r Record) error {
	dir, file, err := s.pathOf(r.Kind, r.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	old, err := readRecord(r.Kind, dir, file)
	switch {
	case errors.Is(s.wrapError(err), fs.ErrNotExist):
		return nil
	case r.Version != "" && (err != nil || old.Version != r.Version):
		return s.wrapError(cmp.Or(err, ErrConflict))
	case r.Kind == KindToken:
		err = removeToken(dir, file)
	case r.Kind == KindRevoked && old.Name != file:
		err = removeVersions(filepath.Join(dir, file+clustersExt), old.Version)
	default:
		if r.Kind == KindRevoked {
			file += recordExt
		}
		err = os.Remove(filepath.Join(dir, file))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.wrapError(err)
}

// removeToken removes the files of a token, that of the token first: with fewer keys it
// could be used again.
func removeToken(dir, id string) error {
	err := os.Remove(filepath.Join(dir, id+recordExt))
	for place := 0; err == nil; place++ {
		err = os.Remove(filepath.Join(dir, keyFile(id, place)))
	}
	return err
}

// removeVersions removes a cluster's folder, unless there is a later version.
func removeVersions(dir, last string) error {
	entries, err := os.ReadDir(dir)
	most, _ := strconv.ParseInt(last, 10, 64)
	for _, entry := range entries {
		ms, other := strconv.ParseInt(strings.TrimSuffix(entry.Name(), recordExt), 10, 64)
		if err == nil && other == nil && ms <= most {
			err = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	if err == nil && os.Remove(dir) != nil {
		err = ErrConflict
	}
	return err
}

// List implements [Store].
func (s DirStore) List(ctx context.Context, kind Kind, of string) (all []Record, err error) {
	dir, _, err := s.pathOf(kind, strings.Repeat("a", 16)) // what a Name may be
	if err != nil {
		return nil, err
	}
	dirs := []string{dir}
	if kind == KindPayload {
		dirs = nil
		clusters, _ := os.ReadDir(filepath.Dir(dir))
		for _, cluster := range clusters {
			if of == "" || cluster.Name() == escapeName(of) {
				dirs = append(dirs, filepath.Join(filepath.Dir(dir), cluster.Name()))
			}
		}
	}
	for _, dir := range dirs {
		if all, err = appendRecords(ctx, all, kind, dir, of); err != nil {
			break
		}
	}
	if err = s.wrapError(err); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return all, err
}

// appendRecords reads the records in one folder.
func appendRecords(ctx context.Context, all []Record, kind Kind, dir, of string) ([]Record, error) {
	entries, err := os.ReadDir(dir)
	last := ""
	for _, entry := range entries {
		file := entry.Name()
		if kind == KindToken || kind == KindRevoked {
			file, _, _ = strings.Cut(file, ".") // several are of one record
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if file == last || file == "" || file[0] == '.' || entry.IsDir() && kind == KindValue || kind == KindValue && !strings.HasPrefix(file, of) {
			continue
		}
		last = file
		r, err := readRecord(kind, dir, file)
		if kind == KindRevoked {
			r.Name = file
		}
		switch {
		case err == nil && r.IsOf(of):
			all = append(all, r)
		case err != nil && !errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil, err
		}
	}
	return all, err
}

// Watch implements [Store]. It looks now and then.
func (s DirStore) Watch(ctx context.Context, kind Kind, changed func(Record)) error {
	if s.Dir == "" {
		return configError("directory store: field Dir is required")
	}
	pollChanges(ctx, s, kind, cmp.Or(s.Interval, 2*time.Second), changed)
	return nil
}
