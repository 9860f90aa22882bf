package tunnel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	privateDir  fs.FileMode = 0o700
	tempPrefix              = ".new-"
	tempForgets             = time.Hour // what a crash left is removed after that
)

// replaceFile gives the file new contents. A crash at any point leaves the old
// or the new ones. Only the owner can read it.
func replaceFile(dir, name string, data []byte) error {
	return putFile(dir, name, data, os.Rename)
}

// createFile is replaceFile for a file that must not exist yet: of those who
// create it at the same time one succeeds, and the others get fs.ErrExist. The
// file system has to know hard links.
func createFile(dir, name string, data []byte) error {
	return putFile(dir, name, data, os.Link)
}

func putFile(dir, name string, data []byte, put func(from, to string) error) (err error) {
	sweepTemp(dir)
	f, err := os.CreateTemp(dir, tempPrefix+"*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		// After a rename there is nothing to remove any more.
		if rm := os.Remove(f.Name()); err == nil && rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = rm
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := put(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a new name last. Not every system can; then it is as it is.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}

// sweepTemp removes what crashes left. What cannot be removed harms nobody.
func sweepTemp(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), tempPrefix) {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > tempForgets {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}
