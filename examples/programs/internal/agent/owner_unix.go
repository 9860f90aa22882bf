//go:build unix

package agent

import (
	"io/fs"
	"os"
	"syscall"
)

func keepOwner(f *os.File, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(st.Uid), int(st.Gid))
	}
	return nil
}
