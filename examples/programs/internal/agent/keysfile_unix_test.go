//go:build unix

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

// A link of another user leads an agent of root's to nothing that this user does not have.
func TestKeysFileLinks(t *testing.T) {
	for _, tt := range []struct {
		name  string
		place func(t *testing.T, dir string) // makes dir/ssh/authorized_keys
		err   string
		want  string
	}{
		{"own link", func(t *testing.T, dir string) {
			mustDo(t, os.Mkdir(dir+"/ssh", 0o700), os.WriteFile(dir+"/mine", []byte("a\n"), 0o600), os.Symlink(dir+"/mine", dir+"/ssh/authorized_keys"))
		}, "", "a\n" + beginMark + key1 + "\n" + endMark},
		{"own link of the folder", func(t *testing.T, dir string) {
			mustDo(t, os.Mkdir(dir+"/real", 0o700), os.Symlink(dir+"/real", dir+"/ssh"))
		}, "", beginMark + key1 + "\n" + endMark},
		{"named pipe", func(t *testing.T, dir string) {
			mustDo(t, os.Mkdir(dir+"/ssh", 0o700), syscall.Mkfifo(dir+"/ssh/authorized_keys", 0o600))
		}, "cannot be read", ""},
		{"endless file", func(t *testing.T, dir string) {
			mustDo(t, os.Mkdir(dir+"/ssh", 0o700), os.Symlink("/dev/zero", dir+"/ssh/authorized_keys"))
		}, "cannot be read", ""},
		{"large file", func(t *testing.T, dir string) {
			mustDo(t, os.Mkdir(dir+"/ssh", 0o700), os.WriteFile(dir+"/ssh/authorized_keys", nil, 0o600), os.Truncate(dir+"/ssh/authorized_keys", maxKeysFile+1))
		}, "cannot be read", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.place(t, dir)
			file := filepath.Join(dir, "ssh", "authorized_keys")
			err := keysFile(file).takePayload(tunnel.Payload{Name: "authorized_keys", Data: []byte(key1)})
			if (err == nil) != (tt.err == "") || err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), dir)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			if tt.err == "" {
				if got, err := os.ReadFile(file); string(got) != tt.want {
					t.Errorf("got %q, %v; want %q", got, err, tt.want)
				}
			}
			if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) != 1 {
				t.Errorf("got %v in the folder", entries)
			}
		})
	}
}

// Owners can't be changed by every user, so the rule for links is tested on what Lstat and
// Stat would say.
func TestMayFollow(t *testing.T) {
	for _, tt := range []struct {
		link, to uint32
		want     bool
	}{{0, 7777, true}, {uint32(os.Geteuid()), 7777, true}, {7777, 7777, true}, {7777, 0, false}, {7777, 8888, false}} {
		if got := mayFollow(ownedFile{mode: os.ModeSymlink, uid: tt.link}, ownedFile{uid: tt.to}); got != tt.want {
			t.Errorf("a link of %d to what is %d's: got %t", tt.link, tt.to, got)
		}
	}
}

type ownedFile struct {
	os.FileInfo
	mode os.FileMode
	uid  uint32
}

func (f ownedFile) Mode() os.FileMode { return f.mode }
func (f ownedFile) Sys() any          { return &syscall.Stat_t{Uid: f.uid} }

// Somebody else's line is not lost, if it comes while the agent writes.
func TestKeysFileEditedMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authorized_keys")
	mustDo(t, os.WriteFile(file, []byte("a\n"), 0o600))
	tries := 0
	err := keysFile(file).edit(func(old []byte) ([]byte, error) {
		if tries++; tries == 1 {
			mustDo(t, os.WriteFile(file, append(old, "theirs\n"...), 0o600))
		}
		return append(old, "ours\n"...), nil
	})
	if got, _ := os.ReadFile(file); err != nil || string(got) != "a\ntheirs\nours\n" || tries != 2 {
		t.Errorf("got %q, %v in %d tries", got, err, tries)
	}
	err = keysFile(file).edit(func(old []byte) ([]byte, error) {
		mustDo(t, os.WriteFile(file, append(old, "theirs\n"...), 0o600))
		return []byte("lost"), nil
	})
	if got, _ := os.ReadFile(file); err != errKeysBusy || strings.Contains(string(got), "lost") {
		t.Errorf("got %q, %v", got, err)
	}
}

func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
