package agent

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/causewayproject/causeway/internal/quote"
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
		{"a mark as the comment of a key", "a\n", key1 + " " + endMark + key2, "a\n" + beginMark + key1 + " " + endMark + key2 + "\n" + endMark, ""},
		{"what stood behind such a mark", "a\n" + beginMark + endMark + key2 + "\n" + endMark + "b\n", "", "a\n" + beginMark + endMark + "b\n", ""},
		{"behind such a mark twice", beginMark + endMark + key2 + "\n" + endMark + key1 + "\n" + endMark, "", beginMark + endMark, ""},
		{"a user's lines and a mark", beginMark + endMark + "from=\"10.0.0.1\" " + key2 + "\n" + endMark, "", beginMark + endMark + "from=\"10.0.0.1\" " + key2 + "\n" + endMark, ""},
		{"two blocks", beginMark + key1 + "\n" + endMark + "a\n" + beginMark + key2 + "\n" + endMark + "b\n", key2, beginMark + key2 + "\n" + endMark + "a\nb\n", ""},
		{"lines that end otherwise", strings.ReplaceAll("a\n"+beginMark+key1+"\n"+endMark, "\n", "\r\n") + "b", "", "a\r\n" + beginMark + endMark + "b", ""},
		{"the end mark ends the file", beginMark + key1 + "\n" + strings.TrimSpace(endMark), "", beginMark + endMark, ""},
		{"no end mark, then a block", beginMark + key1 + "\n" + beginMark + endMark, "", beginMark + key1 + "\n" + beginMark + endMark, "the mark at the end"},
		{"two keys in one line", "", key2 + " " + key1, beginMark + key2 + " " + key1 + "\n" + endMark, ""},
		{"a certificate", "a\n", "ssh-ed25519-cert-v01@openssh.com AAAA", "a\n", "without options"},
		{"a long line", "a\n", key1 + strings.Repeat("x", maxKeyLine), "a\n", "more than 8192 bytes"},
		{"more after the key", "a\n", "ssh-ed25519 " + base64.StdEncoding.EncodeToString([]byte("\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x01x")), "a\n", "without options"},
		{"C1", "a\n", key1 + " \u009b2J", "a\n", "control character (U+009B)"},
		{"C1 in one byte", "a\n", key1 + " \x9b2J", "a\n", "not UTF-8"},
		{"bidi", "a\n", key1 + " \u202e", "a\n", "direction of text"},
		{"line separator", "a\n", key1 + " x\u2028" + key2, "a\n", "separator of lines"},
		{"next line before a key", "a\n", "\u0085" + key1, "a\n", "without options"},
		{"letters of all kinds", "", key1 + " José 日本", beginMark + key1 + " José 日本\n" + endMark, ""},
		{"carriage return", "a\n", key1 + " x\ry " + key2, "a\n", "control character (U+000D)"},
		{"NUL", "a\n", key1 + " \x00", "a\n", "control character (U+0000)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "authorized_keys")
			if tt.old != "" {
				if err := os.WriteFile(file, []byte(tt.old), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			err := keysFile(file).takePayload(tunnel.Payload{Name: "authorized_keys", Data: []byte(tt.data)})
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
		{"no file", "", "authorized_keys", "it runs without --authorized-keys"},
		{"no folder", filepath.Join(dir, "canary", "file"), "authorized_keys", "cannot be written"},
		{"a folder", dir, "authorized_keys", "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := keysFile(tt.file).takePayload(tunnel.Payload{Name: tt.payload, Data: []byte(key1)})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want %q and no path", err, tt.want)
			}
		})
	}
}

// Whatever the server sends and the file had, the file has only keys of the server between
// the marks, none when all are withdrawn, and the user's lines.
func FuzzKeys(f *testing.F) {
	f.Add(key1+" "+endMark+key2, "ssh-rsa mine\n", "theirs\n")
	f.Add(key1+" x\r"+key2, "", "")
	f.Add(key2+" "+beginMark+key1, "a\n"+beginMark+endMark, endMark)
	f.Fuzz(func(t *testing.T, payload, before, after string) {
		keys, err := encodeKeys(payload)
		if err != nil {
			return
		}
		for line := range strings.Lines(keys) {
			_, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
			if err != nil || len(options) > 0 || len(rest) > 0 || quote.Check(comment) != nil {
				t.Errorf("got %q, %q, %q, %v of the line %q", comment, options, rest, err, line)
			}
		}
		old, err := replaceKeys([]byte(before), "")
		if err != nil {
			return
		}
		old = append(old, after...)
		without, errWithout := replaceKeys(old, "")
		with, err := replaceKeys(old, keys)
		if err != nil || errWithout != nil {
			return
		}
		if got, err := replaceKeys(with, ""); err != nil || string(got) != string(without) {
			t.Errorf("withdrawn: got %q, %v; want %q", got, err, without)
		}
		if got := strings.Replace(string(with), beginMark+keys, beginMark, 1); got != string(without) {
			t.Errorf("got %q, want %q with the keys", with, without)
		}
	})
}
