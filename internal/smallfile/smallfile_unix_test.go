//go:build unix

package smallfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/internal/smallfile"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	pipe, long, longest := filepath.Join(dir, "pipe"), filepath.Join(dir, "long"), filepath.Join(dir, "longest")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{longest: 1 << 20, long: 1<<20 + 1} {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		pipe: "is no file", dir: "is no file", "/dev/zero": "is no file",
		long: "is too large: want at most 1 MiB", filepath.Join(dir, "none"): "no such file",
	} {
		if text, err := smallfile.Read(name, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %d bytes, %v; want %q", name, len(text), err, want)
		}
	}
	if text, err := smallfile.Read(longest, 1); err != nil || len(text) != 1<<20 {
		t.Errorf("got %d bytes, %v; want all", len(text), err)
	}
}
