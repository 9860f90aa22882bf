package logs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/follow"
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

var levelNames = []string{"debug", "info", "warn", "error"}

// levelFlag is a level, or a file that holds one. The file is read again when a line may
// be written, every two seconds at most: there is no goroutine for it.
type levelFlag struct {
	text  string
	level atomic.Int64

	files *follow.Files // nil: there is no file
	next  atomic.Int64  // when to read it again, in nanoseconds since 1970
	log   atomic.Pointer[slog.Logger]
}

func (f *levelFlag) String() string {
	if f.text == "" {
		return "info"
	}
	return f.text
}

func (f *levelFlag) Type() string { return strings.Join(levelNames, "|") }

func (f *levelFlag) Set(text string) (err error) {
	f.text, f.files = text, nil
	path, ok := strings.CutPrefix(text, "file:")
	if !ok {
		return f.setLevel(text)
	}
	f.files, err = follow.Open(func(texts [][]byte) error {
		lines, err := follow.Lines(texts[0])
		if err == nil {
			err = f.setLevel(strings.Join(lines, " "))
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	}, path)
	f.next.Store(time.Now().Add(follow.Every).UnixNano())
	return err
}

func (f *levelFlag) setLevel(name string) error {
	if !slices.Contains(levelNames, name) {
		return errors.New("want " + cli.JoinOr(levelNames))
	}
	f.level.Store(int64(levels[name]))
	return nil
}

// Level implements [slog.Leveler].
func (f *levelFlag) Level() slog.Level {
	if f.files != nil {
		f.followFile()
	}
	return slog.Level(f.level.Load())
}

func (f *levelFlag) followFile() {
	now := time.Now()
	due := f.next.Load()
	log := f.log.Load()
	if log == nil || now.UnixNano() < due || !f.next.CompareAndSwap(due, now.Add(follow.Every).UnixNano()) {
		return
	}
	switch changed, err := f.files.Check(); {
	case err != nil:
		log.Warn("log level: the one before stays", "error", fmt.Errorf("--log-level: %w", err))
	case changed:
		line := slog.NewRecord(now, slog.LevelInfo, "log level", 0)
		line.AddAttrs(slog.String("to", strings.ToLower(slog.Level(f.level.Load()).String())))
		log.Handler().Handle(context.Background(), line) // whatever the level
	}
}
