// Package follow reads files again that change while a program runs.
package follow

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// Files are files that belong together, such as a certificate and its key.
type Files struct {
	paths []string
	take  func(texts [][]byte) error

	mu   sync.Mutex // guards the field below
	last string     // what the last reading has given: the texts, or the error's
}

// Open reads the files and calls take with what they hold. If take returns an error, it
// must have changed nothing.
func Open(take func(texts [][]byte) error, paths ...string) (*Files, error) {
	f := &Files{paths: paths, take: take}
	_, err := f.Check()
	return f, err
}

// Check reads the files again, and calls take if they have changed. It reports whether
// they have: an error comes once for each content.
func (f *Files) Check() (changed bool, err error) {
	var texts [][]byte
	var now strings.Builder
	for _, path := range f.paths {
		text, readErr := readFile(path)
		texts = append(texts, text)
		fmt.Fprintf(&now, "%d %s %v\n", len(text), text, readErr)
		err = errors.Join(err, readErr)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.String() == f.last {
		return false, nil
	}
	f.last = now.String()
	if err == nil {
		err = f.take(texts)
	}
	return true, err
}

// readFile does not wait for the other end of a pipe.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	return os.ReadFile(path)
}
