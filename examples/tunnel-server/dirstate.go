package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

func openDir(dir string) (dirState, error) {
	return dirState{dir}, os.MkdirAll(dir, 0o700)
}

func (s dirState) server(context.Context) (*tunnel.Server, error) {
	a, err := s.authority()
	if err != nil {
		return nil, err
	}
	return &tunnel.Server{Authority: a, Store: tunnel.DirStore{Dir: s.dir}}, nil
}

func (s dirState) authority() (*tunnel.Authority, error) {
	text, err := os.ReadFile(s.path(authorityFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.newAuthority(); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		text, err = os.ReadFile(s.path(authorityFile))
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
				return nil, fmt.Errorf("%s: %w", s.path(authorityFile), err)
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

// warnIfPublic warns of an authority that every user of the machine can read. A
// group may be the one that a volume of Kubernetes is mounted for.
func (s dirState) warnIfPublic(log *slog.Logger) {
	info, err := os.Stat(s.path(authorityFile))
	if err == nil && info.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows" {
		log.Warn("every user of this machine can read or write the authority's key: set the file's mode to 600, or replace the authority",
			"file", s.path(authorityFile), "mode", info.Mode().Perm().String())
	}
}

// newAuthority makes the authority. Of two processes that start at once one
// succeeds; both then have its.
func (s dirState) newAuthority() error {
	a, err := tunnel.NewAuthority()
	if err != nil {
		return err
	}
	certs, key, err := a.PEM()
	if err != nil {
		return err
	}
	return s.write(authorityFile, append(certs, key...), os.Link)
}

// write puts a whole file in place, by os.Rename, or by os.Link where there
// must be none yet.
func (s dirState) write(name string, data []byte, put func(from, to string) error) error {
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
	return put(f.Name(), s.path(name))
}

func (s dirState) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s dirState) read(_ context.Context, name string) ([]byte, error) {
	return os.ReadFile(s.path(name))
}

func (s dirState) replace(_ context.Context, name string, data []byte) error {
	return s.write(name, data, os.Rename)
}

func (s dirState) create(_ context.Context, name string, data []byte) error {
	return s.write(name, data, os.Link)
}

// escape makes a name safe as the name of a file, ".." too.
func escape(name string) string { return "=" + url.PathEscape(name) }

func (s dirState) setPayload(_ context.Context, cluster string, p tunnel.Payload) error {
	dir := filepath.Join(payloadsDir, escape(cluster))
	if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
		return err
	}
	return s.write(filepath.Join(dir, escape(p.Name)), p.Data, os.Rename)
}

func (s dirState) payloads(_ context.Context, cluster string) ([]tunnel.Payload, error) {
	dir := s.path(payloadsDir, escape(cluster))
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
