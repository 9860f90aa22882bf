package limits

import (
	"fmt"
	"log/slog"
	"os"
)

// File is a file with a Config that is followed.
type File struct {
	path    string
	limiter *Limiter
	last    string // what the last reading has given: the text, or the error's
}

// Open reads the file, and sets the Limiter's Config.
func Open(path string, l *Limiter) (*File, error) {
	f := &File{path: path, limiter: l}
	_, err := f.read()
	return f, err
}

// read reports whether the file has changed.
func (f *File) read() (changed bool, err error) {
	b, err := os.ReadFile(f.path)
	now := "+" + string(b)
	if err != nil {
		now = "-" + err.Error()
	}
	if now == f.last {
		return false, nil
	}
	f.last = now
	if err != nil {
		return true, err
	}
	c, err := Parse(b)
	if err != nil {
		return true, fmt.Errorf("%s: %w", f.path, err)
	}
	f.limiter.Set(c)
	return true, nil
}

// Check reads the file again, and logs what became of a change. A Config that can't be
// used changes nothing. It is not safe for concurrent use.
func (f *File) Check(log *slog.Logger) {
	switch changed, err := f.read(); {
	case err != nil:
		log.Warn("limits: those before stay", "error", err)
	case changed:
		log.Info("limits", "file", f.path)
	}
}
