// Package logs is how the programs write their log. docs/logs.md lists the lines.
package logs

import (
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/internal/printable"
)

// Flags are the flags about the log.
type Flags struct {
	format, level string
	set           *pflag.FlagSet // that it was added to
}

// Add adds the flags to a command.
func (f *Flags) Add(set *pflag.FlagSet) {
	f.set = set
	set.Var(cli.NewChoice(&f.format, "text", "text", "json"), "log-format", "how the lines of the log are written: as key=value, or each as a JSON object")
	set.Var(cli.NewChoice(&f.level, "info", "debug", "info", "warn", "error"), "log-level", "the least important lines that are written")
}

// New returns the logger that the flags ask for; Add was called before.
func (f *Flags) New(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // it knows all the choices
	o := &slog.HandlerOptions{ReplaceAttr: f.replaceText, Level: level}
	w = escapingWriter{w}
	if f.format == "json" {
		o.ReplaceAttr = f.replaceJSON
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// escapingWriter writes lines with escapes for what does not print. A line of JSON means the
// same; slog's text has most of them already.
type escapingWriter struct{ io.Writer }

func (w escapingWriter) Write(line []byte) (int, error) {
	if _, err := w.Writer.Write(printable.JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// maxValue is how long a text in a line may be, in bytes: others choose some of them.
const maxValue = 1 << 10

// replaceText leaves out keys without a value, and cuts long texts. Errors name variables.
func (f *Flags) replaceText(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		if text := v.String(); len(text) == 0 {
			return slog.Attr{}
		} else if len(text) > maxValue {
			a.Value = slog.StringValue(printable.Text(text, maxValue))
		}
	case slog.KindAny:
		switch v := v.Any().(type) {
		case nil:
			return slog.Attr{}
		case error:
			return f.replaceText(nil, slog.String(a.Key, cli.NameSources(f.set, v).Error()))
		}
	}
	return a
}

// replaceJSON writes durations in seconds, too: slog's nanoseconds are for nobody.
func (f *Flags) replaceJSON(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key, a.Value.Duration().Round(time.Microsecond).Seconds())
	}
	return f.replaceText(groups, a)
}
