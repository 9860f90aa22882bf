//go:build unix

package mux_test

import (
	"syscall"
	"testing"
)

// setBlocking does to c what os.File.Fd does to a copy of its descriptor.
func setBlocking(t testing.TB, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = syscall.SetNonblock(int(fd), false) })
	if err != nil {
		t.Fatal(err)
	}
}
