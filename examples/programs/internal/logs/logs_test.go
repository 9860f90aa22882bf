package logs_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string // of each line, without the time
	}{
		{"", `level=INFO msg=hello name="a b" duration=1.5s` + "\n" + `level=WARN msg=warn` + "\n"},
		{"--log-level warn", "level=WARN msg=warn\n"},
		{"--log-level error", ""},
		{"--log-format json --log-level debug", `"level":"DEBUG","msg":"detail"}` + "\n" + `"level":"INFO","msg":"hello","name":"a b","duration":1.5}` + "\n" + `"level":"WARN","msg":"warn"}` + "\n"},
	} {
		var f logs.Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Add(set)
		if err := cli.Parse(set, strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		log := f.New(&text)
		log.Debug("detail")
		log.Info("hello", "name", "a b", "empty", "", "error", error(nil), "duration", 1500*time.Millisecond)
		log.Warn("warn")
		got := ""
		for line := range strings.Lines(text.String()) {
			_, after, _ := strings.Cut(line, "Z")
			got += strings.TrimLeft(after, `", `)
			if strings.HasPrefix(strings.TrimLeft(after, `",`), "level") && strings.Contains(line, "{") {
				got = strings.Replace(got, `level":`, `"level":`, 1)
			}
		}
		if strings.Count(got, "\n") != strings.Count(tt.want, "\n") || strings.ReplaceAll(got, `"`, "") != strings.ReplaceAll(tt.want, `"`, "") {
			t.Errorf("%q: got\n%s\nwant\n%s", tt.args, got, tt.want)
		}
	}
}

func TestFlagMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"--log-format xml":  "--log-format",
		"--log-level trace": "want debug, info, warn or error",
	} {
		var f logs.Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Add(set)
		if err := cli.Parse(set, strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", args, err, want)
		}
	}
}

// What slog takes for text that prints, and people don't see, is escaped in both formats.
func TestValuesPrint(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var f logs.Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Add(set)
		if err := cli.Parse(set, []string{"--log-format", format}); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		f.New(&text).Info("access", "client", "a\u3164b", "cluster", "\u0301é", "target", "e\u0301")
		if got := text.String(); !strings.Contains(got, `a\u3164b`) || !strings.Contains(got, `\u0301é`) || !strings.Contains(got, "e\u0301") {
			t.Errorf("%s: got %q", format, got)
		}
	}
}

// Others choose some values: they are quoted, and cut.
func TestValuesAreBounded(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var f logs.Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Add(set)
		if err := set.Set("log-format", format); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		long := "\u009b31m\u202e\u0085" + strings.Repeat("a\n\x1b[31m", 1<<20)
		f.New(&text).Log(t.Context(), slog.LevelInfo, "hello", "name", long, "error", errors.New(long), "list", []string{long[:10]})
		if text.Len() > 20<<10 || strings.Count(text.String(), "\n") != 1 || strings.ContainsAny(text.String(), "\x1b\u009b\u202e\u0085") {
			t.Errorf("%s: got %d bytes in %d lines", format, text.Len(), strings.Count(text.String(), "\n"))
		}
	}
}
