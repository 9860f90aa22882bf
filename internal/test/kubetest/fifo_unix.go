//go:build unix

package kubetest

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// UnopenedFIFO returns a named pipe, and fails the test if somebody has opened it to read
// when the test ends: whoever has waits for a writer.
func UnopenedFIFO(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		switch fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0); {
		case err == nil:
			syscall.Close(fd)
			t.Error("the named pipe was opened")
		case !errors.Is(err, syscall.ENXIO):
			t.Error(err)
		}
	})
	return path
}
