package agent

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	key1 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4vB2gN5zT1VbHqQk6vWcJx2m0oYc5Kf3uD7sQxv1aB one@example"
	key2 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHn7Qw1lqjv0bC3dKzv5r8sT2uXyZa4eFgHiJkLmNoPq"
)

func TestKeysFile(t *testing.T) {
	for _, tt := range []struct {
		name, old, data, want string
		err                   string
	}{
		{"new file", "", key1, beginMark + key1 + "\n" + endMark, ""},
		{"beside others", "ssh-rsa mine", key1, "ssh-rsa mine\n" + beginMark + key1 + "\n" + endMark, ""},
		{"replaced", "a\n" + beginMark + key1 + "\n" + endMark + "b\n", key2 + "\n", "a\n" + beginMark + key2 + "\n" + endMark + "b\n", ""},
		{"taken away", "a\n" + beginMark + key1 + "\n" + endMark + "b\n", "", "a\n" + beginMark + endMark + "b\n", ""},
		{"two keys, comments", "", "# c\n" + key1 + "\r\n\n " + key2, beginMark + key1 + "\n" + key2 + "\n" + endMark, ""},
		{"no end mark", "a\n" + beginMark + "b\n", key1, "a\n" + beginMark + "b\n", "the mark at the end"},
		{"options", "a\n", `command="reboot" ` + key1, "a\n", "without options"},
		{"environment", "a\n", `environment="LD_PRELOAD=/x" ` + key1, "a\n", "without options"},
		{"not a key", "a\n", "hello", "a\n", "without options"},
		{"another kind inside", "a\n", strings.Replace(key1, "ssh-ed25519 ", "ssh-rsa ", 1), "a\n", "without options"},
		{"obsolete kind", "a\n", "ssh-dss " + base64.StdEncoding.EncodeToString([]byte("\x00\x00\x00\x07ssh-dss and more")), "a\n", "without options"},
		{"not base64", "a\n", "ssh-ed25519 !!!!", "a\n", "without options"},
		{"length beyond the data", "a\n", "ssh-ed25519 /////w==", "a\n", "without options"},
		{"the end mark as a comment", "a\n", key1 + "\n" + endMark + key2, "a\n" + beginMark + key1 + "\n" + key2 + "\n" + endMark, ""},
		{"carriage return", "a\n", key1 + " x\ry " + key2, "a\n", "does not print"},
		{"NUL", "a\n", key1 + "\x00", "a\n", "does not print"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "authorized_keys")
			if tt.old != "" {
				if err := os.WriteFile(file, []byte(tt.old), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			err := keysFile(file).takePayload(t.Context(), tunnel.Payload{Name: "authorized_keys", Data: []byte(tt.data)})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			if got, _ := os.ReadFile(file); string(got) != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
			want := os.FileMode(0o600)
			if tt.old != "" {
				want = 0o640
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != want {
				t.Errorf("got mode %v, %v; want %v", info.Mode(), err, want)
			}
			if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) != 1 {
				t.Errorf("got %v in the folder, want the file alone", entries)
			}
		})
	}
}

func TestKeysFileErrors(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, file, payload, want string
	}{
		{"another payload", filepath.Join(dir, "file"), "motd", "no payload but authorized_keys"},
		{"no folder", filepath.Join(dir, "canary", "file"), "authorized_keys", "cannot be written"},
		{"a folder", dir, "authorized_keys", "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := keysFile(tt.file).takePayload(t.Context(), tunnel.Payload{Name: tt.payload, Data: []byte(key1)})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want %q and no path", err, tt.want)
			}
		})
	}
}

// What fails leaves nothing in the folder.
func TestReplaceFileFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(dir, "folder"), nil); err == nil {
		t.Error("got nil for a file in the place of a folder")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("got %v in the folder", entries)
	}
}
