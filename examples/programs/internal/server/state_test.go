package server

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// A key that every user of the machine can read is said once, in the server's log.
func TestPublicAuthority(t *testing.T) {
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o660: 0, 0o644: 1} {
		f := stateFlags{dir: t.TempDir()}
		st := dirState{f.dir}
		if _, err := st.loadAuthority(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(st.pathOf(authorityFile), mode); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if _, err := f.open(slog.New(slog.NewTextHandler(&text, nil))); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(text.String(), "file="+st.pathOf(authorityFile)); got != want {
			t.Errorf("mode %o: got %q, want %d warnings", mode, &text, want)
		}
	}
}

// A name may be revoked that has not enrolled; the command says that it may be
// nobody's.
func TestRevokeSaysWhom(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"revoke", "default/prod", "nobody", "--state", t.TempDir()}, nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"nobody"`, `"default/prod"`, "whether or not it ever connected"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %s", out.String(), want)
		}
	}
}
