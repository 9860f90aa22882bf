package server

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/causewayproject/causeway/tunnel"
)

// dirState is a state in a directory, for one server.
type dirState struct{ dir string }

const (
	authorityFile = "authority.pem" // certificates and key
	payloadsDir   = "payloads"      // CLUSTER/NAME, escaped
)

// openDir makes the folder if it is missing.
func openDir(dir string) (dirState, error) {
	s := dirState{dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, err
	}
	return s, s.checkModes()
}

func (s dirState) check(context.Context) error {
	if _, err := os.Stat(s.pathOf(authorityFile)); err != nil {
		return err
	}
	return s.checkModes()
}

func (s dirState) server(context.Context) (*tunnel.Server, error) {
	a, err := s.loadAuthority()
	if err != nil {
		return nil, err
	}
	return &tunnel.Server{Authority: a, Store: tunnel.DirStore{Dir: s.dir}}, nil
}

func (s dirState) loadAuthority() (*tunnel.Authority, error) {
	text, err := os.ReadFile(s.pathOf(authorityFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.newAuthority(); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		text, err = os.ReadFile(s.pathOf(authorityFile))
	}
	if err != nil {
		return nil, err
	}
	var certs, key []byte
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			a, err := tunnel.ParseAuthority(certs, key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.pathOf(authorityFile), err)
			}
			return a, nil
		}
		if block.Type == "CERTIFICATE" {
			certs = append(certs, pem.EncodeToMemory(block)...)
		} else {
			key = append(key, pem.EncodeToMemory(block)...)
		}
	}
}

// checkModes returns an error if every user of the machine can read the authority's key,
// or put another one in its place. A group may: Kubernetes mounts volumes for one.
func (s dirState) checkModes() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm()&0o002 != 0 {
		return cmp.Or(err, errors.New("every user of this machine can write to the folder: set its mode to 700, or name a folder of its own below it"))
	}
	info, err := os.Stat(s.pathOf(authorityFile))
	if err == nil && info.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("every user of this machine can read or write %s, the authority's key: set its mode to 600, or replace the authority", authorityFile)
	}
	return nil
}

// newAuthority creates the authority. If two processes start at once, one succeeds
// and both use its authority.
func (s dirState) newAuthority() error {
	a, err := tunnel.NewAuthority()
	if err != nil {
		return err
	}
	certs, key, err := a.PEM()
	if err != nil {
		return err
	}
	return s.writeFile(authorityFile, append(certs, key...), os.Link)
}

// writeFile writes a temporary file and puts it in place, by os.Rename, or by os.Link
// if there must be no such file yet.
func (s dirState) writeFile(name string, data []byte, put func(from, to string) error) error {
	f, err := os.CreateTemp(s.dir, ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return put(f.Name(), s.pathOf(name))
}

func (s dirState) pathOf(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s dirState) read(_ context.Context, name string) ([]byte, error) {
	return os.ReadFile(s.pathOf(name))
}

func (s dirState) replace(_ context.Context, name string, data []byte) error {
	return s.writeFile(name, data, os.Rename)
}

func (s dirState) create(_ context.Context, name string, data []byte) error {
	return s.writeFile(name, data, os.Link)
}

func (s dirState) list(_ context.Context, prefix string) (values map[string][]byte, err error) {
	values = map[string][]byte{}
	entries, err := os.ReadDir(s.dir)
	for _, entry := range entries {
		if err != nil || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		var data []byte
		if data, err = os.ReadFile(s.pathOf(entry.Name())); err == nil {
			values[strings.TrimPrefix(entry.Name(), prefix)] = data
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil // it was removed meanwhile
		}
	}
	return values, err
}

func (s dirState) remove(_ context.Context, name string) error { return os.Remove(s.pathOf(name)) }

// escapeName makes a file name of any name, such as "..".
func escapeName(name string) string { return "=" + url.PathEscape(name) }

func (s dirState) setPayload(_ context.Context, cluster string, p tunnel.Payload) error {
	dir := filepath.Join(payloadsDir, escapeName(cluster))
	if err := os.MkdirAll(s.pathOf(dir), 0o700); err != nil {
		return err
	}
	return s.writeFile(filepath.Join(dir, escapeName(p.Name)), p.Data, os.Rename)
}

func (s dirState) payloads(_ context.Context, cluster string) ([]tunnel.Payload, error) {
	dir := s.pathOf(payloadsDir, escapeName(cluster))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []tunnel.Payload
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		name, err := url.PathUnescape(strings.TrimPrefix(entry.Name(), "="))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, entry.Name()), err)
		}
		list = append(list, tunnel.Payload{Name: name, Data: data})
	}
	return list, nil
}
