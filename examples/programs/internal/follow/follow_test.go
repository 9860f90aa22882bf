//go:build unix

package follow

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A change is told once, be it good or bad, and what can't be read is one.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(a, "1")
	write(b, "1")
	var taken string
	f, err := Open(func(texts [][]byte) error {
		if string(texts[0]) != string(texts[1]) {
			return errors.New("they don't match")
		}
		taken = string(texts[0])
		return nil
	}, a, b)
	if err != nil || taken != "1" {
		t.Fatalf("got %v, %q", err, taken)
	}
	for _, step := range []struct {
		do      func()
		changed bool
		err     string
	}{
		{func() {}, false, ""},
		{func() { write(a, "2") }, true, "match"},
		{func() {}, false, ""},
		{func() { write(b, "2") }, true, ""},
		{func() { os.Remove(b) }, true, "no such file"},
		{func() {}, false, ""},
		{func() { syscall.Mkfifo(b, 0o600) }, true, "is no file"},
		{func() { os.Remove(b); write(b, "2") }, true, ""},
		{func() { os.Truncate(b, 16<<20+1) }, true, b + " is too large: want at most 16 MiB"},
		{func() { write(b, "2") }, true, ""},
		{func() { write(b, "\ufeff2") }, false, ""}, // an editor's byte order mark
	} {
		step.do()
		changed, err := f.Check()
		if changed != step.changed || (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("got %t, %v, want %t, %q", changed, err, step.changed, step.err)
		}
	}
	if taken != "2" {
		t.Errorf("took %q", taken)
	}
}
