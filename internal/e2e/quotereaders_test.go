package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/quote"
)

// TestQuoteReaders: systemd and the shell read what package quote writes.
func TestQuoteReaders(t *testing.T) {
	texts := []string{"a", "", " ", "a  b ", hostile, `\`, `\\`, `\n`, `\x41`, `\"`, `"`, `'`, "''", "'\\''", "%", "%%", "%n", "%h%%", "$", "$$", "$PATH", "${PATH}", "$(id)", "`id`",
		";", "a ; b", "; /bin/false", "#", "~", "-n", "@x", "!", "*", "{a,b}", "é", "日本", "=", "--alias=[2001:db8::1]:6443=127.0.0.1:6443"}
	plain := []string{"http://u:p%40ss@proxy:3128", "*.example.com,10.0.0.0/8,[2001:db8::1]:443", "bücher.test", "a=b+c@d"}
	write := func(encode func(string) (string, error), text string) string {
		t.Helper()
		word, err := encode(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return word
	}
	var assignments, arguments, words, lines string
	var want []string
	for i, text := range texts {
		assignments += "Environment=" + write(quote.SystemdAssignment, fmt.Sprintf("Q%d=%s", i, text)) + "\n"
		arguments += " " + write(quote.SystemdArgument, text)
		words += " " + write(quote.Shell, text)
		want = append(want, fmt.Sprintf("Q%d=%s", i, text))
	}
	for i, text := range plain {
		lines += write(func(s string) (string, error) { return quote.EnvLine(fmt.Sprintf("Q_%d", i), s) }, text) + "\n"
		want = append(want, fmt.Sprintf("Q_%d=%s", i, text))
	}
	slices.Sort(want)
	dump := func(dir string) string {
		return fmt.Sprintf("env -0 | grep -z ^Q >%[1]s/env\nfor a; do printf '%%s\\0' \"$a\"; done >%[1]s/args\n", dir)
	}
	check := func(what, dir string) {
		t.Helper()
		read := func(name string) []string {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				log, _ := os.ReadFile(filepath.Join(dir, "log"))
				t.Fatalf("%s: %v\n%s", what, err, log)
			}
			return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		}
		if got := read("args"); !slices.Equal(got, texts) {
			t.Errorf("%s: got the arguments\n%q\nwant\n%q", what, got, texts)
		}
		if got := slices.Sorted(slices.Values(read("env"))); !slices.Equal(got, want) {
			t.Errorf("%s: got the environment\n%q\nwant\n%q", what, got, want)
		}
	}

	booted := sharedDir(t)
	writeFile(t, filepath.Join(booted, "dump"), dump(booted))
	writeFile(t, filepath.Join(booted, "lines"), lines)
	writeFile(t, filepath.Join(booted, "units/end.service"), ourTarget+"SuccessAction=exit-force\nFailureAction=exit-force\n[Service]\nType=oneshot\nEnvironmentFile="+booted+"/lines\n"+
		assignments+"ExecStart=/bin/sh "+booted+"/dump"+arguments+"\n")
	writeFile(t, filepath.Join(booted, "units/default.target"), ourTarget+"Wants=end.service\n")
	if err := os.MkdirAll(filepath.Join(booted, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	startSystemd(t, booted, nil)()
	check("systemd", booted)

	shell := t.TempDir()
	script := "set -eu\n"
	for i, text := range texts {
		script += fmt.Sprintf("export Q%d=%s\n", i, write(quote.Shell, text))
	}
	script += "set -a\n" + lines + "set --" + words + "\n" + dump(shell)
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	check("sh", shell)
}
