package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
)

// The level in a file may change, and a wrong one changes nothing.
func TestLevelFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "level")
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		parse := func() (*Flags, error) {
			var f Flags
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.Add(set)
			return &f, set.Parse([]string{"--log-level", "file:" + file})
		}
		if _, err := parse(); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("got %v without a file", err)
		}
		write("loud\n")
		if _, err := parse(); err == nil || !strings.Contains(err.Error(), file+": want debug, info, warn or error") {
			t.Errorf("got %v of a wrong level", err)
		}
		write("# warn\nwarn")
		f, err := parse()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		log := f.New(&out)
		for _, step := range []string{"warn", "debug", "nonsense", "error"} {
			write("# " + step + "\n" + step)
			time.Sleep(2 * time.Second)
			log.Debug("fine")
			log.Warn("bad")
		}
		const want = `level=WARN msg=bad
level=INFO msg="log level" to=debug
level=DEBUG msg=fine
level=WARN msg=bad
level=WARN msg="log level: the one before stays" error="--log-level: FILE: want debug, info, warn or error"
level=DEBUG msg=fine
level=WARN msg=bad
level=INFO msg="log level" to=error
`
		var got strings.Builder
		for line := range strings.Lines(strings.ReplaceAll(out.String(), file, "FILE")) {
			_, line, _ = strings.Cut(line, " ")
			got.WriteString(line)
		}
		if got.String() != want {
			t.Errorf("got\n%s\nwant\n%s", &got, want)
		}
	})
}
