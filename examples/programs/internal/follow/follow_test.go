//go:build unix

package follow_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/examples/programs/internal/follow"
)

// A change is told once, be it good or bad, and what can't be read is one.
func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	var taken string
	f, err := follow.Open(path, func(text []byte) error {
		if string(text) == "wrong" {
			return errors.New("it is wrong")
		}
		taken = string(text)
		return nil
	})
	if err != nil || taken != "1" {
		t.Fatalf("got %v, %q", err, taken)
	}
	const told, kept = "level=INFO msg=figures file=", `level=WARN msg="figures: those before stay" error="--flag: `
	for _, step := range []struct {
		do   func()
		want string // part of the one line that is logged; empty: nothing is logged
	}{
		{func() {}, ""},
		{func() { write("wrong") }, kept + "it is wrong"},
		{func() {}, ""},
		{func() { write("2") }, told + path},
		{func() { os.Remove(path) }, "no such file"},
		{func() {}, ""},
		{func() { syscall.Mkfifo(path, 0o600) }, "is no file"},
		{func() { os.Remove(path); write("2") }, told},
		{func() { os.Truncate(path, 16<<20+1) }, path + " is too large: want at most 16 MiB"},
		{func() { write("2") }, told},
		{func() { write("\ufeff2") }, ""}, // an editor's byte order mark
	} {
		step.do()
		var out bytes.Buffer
		f.Check(slog.New(slog.NewTextHandler(&out, nil)), "figures", "flag")
		if got := out.String(); (got == "") != (step.want == "") || !strings.Contains(got, step.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
	if taken != "2" {
		t.Errorf("took %q", taken)
	}
}
