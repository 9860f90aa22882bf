//go:build unix

package cli

import (
	"io/fs"
	"os"
	"syscall"
)

// KeepOwner gives a file the owner of another one, where the system has owners.
func KeepOwner(f *os.File, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(st.Uid), int(st.Gid))
	}
	return nil
}

// Owner returns the user ID of a file's owner, where the system has owners.
func Owner(info fs.FileInfo) (uid int, known bool) {
	st, known := info.Sys().(*syscall.Stat_t)
	if known {
		uid = int(st.Uid)
	}
	return uid, known
}
