// Package smallfile reads files that others may have put in the place of ours.
package smallfile

import (
	"fmt"
	"io"
	"os"
)

// Read returns what is in a file of at most so many MiB. It does not wait for the other end
// of a pipe, and reads nothing of a device, which may have no end.
func Read(path string, mebibytes int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", path)
	case info.Size() > mebibytes<<20:
		return nil, fmt.Errorf("%s is too large: want at most %d MiB", path, mebibytes)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, mebibytes<<20)) // it may grow meanwhile
}
