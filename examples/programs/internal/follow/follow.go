// Package follow reads files again that change while a program runs.
package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/smallfile"
)

// Every is how often files are read again, if no flag says it.
const Every = 2 * time.Second

// Run calls check now and then, and when the process gets a SIGHUP, until ctx ends.
func Run(ctx context.Context, every time.Duration, check func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for {
		select {
		case <-ticker.C:
		case <-reload:
		case <-ctx.Done():
			return
		}
		check()
	}
}

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

// LogChange is Check that logs a change of one file: what is in it, and the flag that names it.
func (f *Files) LogChange(log *slog.Logger, what, flag string) {
	switch changed, err := f.Check(); {
	case err != nil:
		log.Warn(what+": those before stay", "error", fmt.Errorf("--%s: %w", flag, err))
	case changed:
		log.Info(what, "file", f.paths[0])
	}
}

// maxMebibytes is far more than any of the files has: limits for 100,000 users are 3 MiB.
const maxMebibytes = 16

// byteOrderMark is what some editors begin a file of UTF-8 with.
var byteOrderMark = []byte("\ufeff")

// readFile returns what is in the file behind a byte order mark.
func readFile(path string) ([]byte, error) {
	text, err := smallfile.Read(path, maxMebibytes)
	return bytes.TrimPrefix(text, byteOrderMark), err
}
