package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The token is read anew for each enrolment, and joins an invitation without one, from
// the file or from the environment.
func TestJoinToken(t *testing.T) {
	const pin = "CAUSEWAY_PIN=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f := flags{joinToken: write("token", "aaa.bbb.ccc\n"), invitation: write("invitation", "CAUSEWAY_CLUSTER=prod/a\n"+pin)}
	read := func(what, token string) {
		t.Helper()
		inv, err := f.readInvitation(t.Context())
		if err != nil || inv.Token != token || inv.Cluster != "prod/a" {
			t.Errorf("%s: got %v with the token %q, %v", what, inv, inv.Token, err)
		}
	}
	read("a file", "aaa.bbb.ccc")
	write("token", "ddd.eee.fff")
	read("the next token", "ddd.eee.fff")
	for _, test := range []struct{ name, token, invitation, want string }{
		{"two tokens", "aaa.bbb.ccc", "CAUSEWAY_TOKEN='x'\n" + pin, "there are two tokens"},
		{"no token", "\n", pin, "the file has no token"},
		{"a variable after the token", "aaa.bbb.ccc\nCAUSEWAY_SERVERS=canary:1", pin, "the file has no token"},
		{"not a token", "canary", pin, "not a token"},
		{"a large file", strings.Repeat("canary", 200_000), pin, "is too large: want at most 1 MiB"},
		{"no pin", "aaa.bbb.ccc", "", "CAUSEWAY_PIN"},
	} {
		write("token", test.token)
		write("invitation", test.invitation)
		if _, err := f.readInvitation(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
	write("token", "aaa.bbb.ccc")
	f.invitation = ""
	t.Setenv("CAUSEWAY_CLUSTER", "prod/a")
	t.Setenv("CAUSEWAY_PIN", strings.TrimSpace(strings.TrimPrefix(pin, "CAUSEWAY_PIN=")))
	read("the environment", "aaa.bbb.ccc")
	f.joinToken = filepath.Join(dir, "none")
	if _, err := f.readInvitation(t.Context()); err == nil || !strings.Contains(err.Error(), "--join-token: ") {
		t.Errorf("no file: %v", err)
	}
}
