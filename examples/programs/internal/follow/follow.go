// Package follow reads files again that change while a program runs.
package follow

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
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

// A File is read again. One goroutine uses it.
type File struct {
	path string
	take func(text []byte) error
	last string // what the last reading has given: the text, or the error's
}

// Open reads the file and calls take with what it holds. If take returns an error, it must
// have changed nothing.
func Open(path string, take func(text []byte) error) (*File, error) {
	f := &File{path: path, take: take}
	_, err := f.check()
	return f, err
}

// Check reads the file again, and calls take if it has changed. It logs that, or what is
// wrong with the file, once for each content. what says what the file holds, such as
// "targets"; flag is the name of the flag that gave the file.
func (f *File) Check(log *slog.Logger, what, flag string) {
	switch changed, err := f.check(); {
	case err != nil:
		log.Warn(what+": those before stay", "error", fmt.Errorf("--%s: %w", flag, err))
	case changed:
		log.Info(what, "file", f.path)
	}
}

func (f *File) check() (changed bool, err error) {
	text, err := smallfile.Read(f.path, maxMebibytes)
	text = bytes.TrimPrefix(text, byteOrderMark)
	now := fmt.Sprintf("%s %v", text, err)
	if now == f.last {
		return false, nil
	}
	f.last = now
	if err == nil {
		err = f.take(text)
	}
	return true, err
}

// maxMebibytes is far more than any of the files has: limits for 100,000 users are 3 MiB.
const maxMebibytes = 16

// byteOrderMark is what some editors begin a file of UTF-8 with.
var byteOrderMark = []byte("\ufeff")
