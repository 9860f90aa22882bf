package main

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
)

func run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out strings.Builder
	_, err = command.Execute(t.Context(), newRoot(), args, strings.NewReader(""), &out, io.Discard)
	return out.String(), err
}

// eachCommand calls f for each command that does something of ours.
func eachCommand(f func(*cobra.Command)) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			f(child)
			visit(child)
		}
	}
	visit(newRoot())
}

// Each command says what it does and shows one line that does it, with flags that it
// has; no two listen on the same port unless they are told to; no variable of a flag is
// one of an invitation's.
func TestCommands(t *testing.T) {
	ports := map[string]string{"8081": "causeway-agent"}
	count := 0
	eachCommand(func(cmd *cobra.Command) {
		count++
		if cmd.Short == "" || !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: got %q, %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", "")) {
			_, arguments, _ := strings.Cut(line, cmd.CommandPath())
			for word := range strings.FieldsSeq(arguments) {
				name, found := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(name, "=")
				if found && cmd.Flags().Lookup(name) == nil && !cmd.HasSubCommands() {
					t.Errorf("%s: its example has --%s", cmd.CommandPath(), name)
				}
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains([]string{"CAUSEWAY_SERVERS", "CAUSEWAY_CLUSTER", "CAUSEWAY_TOKEN", "CAUSEWAY_PIN", "CAUSEWAY_EXPIRES"}, cli.Variable(f.Name)) {
				t.Errorf("%s: the variable of --%s is an invitation's", cmd.CommandPath(), f.Name)
			}
			if _, port, err := net.SplitHostPort(f.DefValue); err == nil {
				if ports[port] != "" {
					t.Errorf("%s and %s listen on %s", cmd.CommandPath(), ports[port], port)
				}
				ports[port] = cmd.CommandPath()
			}
		})
	})
	if count < 5 {
		t.Errorf("got %d commands", count)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}} {
		out, err := run(t, args...)
		for _, want := range []string{"\n  doctor  ", "Run in a cluster:\n", "\n  injector  ", "CAUSEWAY_DOOR_CERT", "status 0", "causeway COMMAND"} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%q: got %v and no %q in\n%s", args, err, want, out)
			}
		}
	}
	out, err := run(t, "doctor", "--help")
	if err != nil || !strings.Contains(out, "--color auto|always|never") || !strings.Contains(out, "causeway doctor [flags]") {
		t.Errorf("got %v and\n%s", err, out)
	}
}

func TestMistakes(t *testing.T) {
	t.Setenv("CAUSEWAY_TIMEOUT", "canary")
	for _, tt := range []struct{ args, want string }{
		{"", "COMMAND is missing"},
		{"doktor", `unknown command "doktor": did you mean doctor?`},
		{"frobnicate", `unknown command "frobnicate"`},
		{"noproxy lnt", `unknown command "lnt": did you mean lint?`},
		{"doctor", "the variable CAUSEWAY_TIMEOUT is not a value of --timeout: want duration"},
		{"doctor x", `unexpected argument "x"; usage: causeway doctor [flags]`},
		{"injector -health :1", "unknown flag -health: flags have two dashes"},
		{"injector -drain 1s", "unknown flag -drain: flags have two dashes: --drain"},
		{"injector --helth :1", "unknown flag --helth: did you mean --health?"},
		{"injector --frobnicate", "unknown flag --frobnicate"},
		{"injector --drain", "flag needs an argument: --drain"},
		{"injector --drain soon", `invalid argument "soon" for "--drain" flag`},
		{"completion bsh", `unknown command "bsh": did you mean bash, zsh or fish?`},
		{"version x", `unexpected argument "x"`},
	} {
		out, err := run(t, strings.Fields(tt.args)...)
		var mistake cli.UsageError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") || out != "" {
			t.Errorf("%q: got %v and %q, want %q", tt.args, err, out, tt.want)
		}
	}
}

func TestVersion(t *testing.T) {
	if out, err := run(t, "version"); err != nil || !strings.HasPrefix(out, "causeway ") || !strings.Contains(out, "go1.") {
		t.Errorf("got %q, %v", out, err)
	}
}

// Completion lists commands and the values of flags.
func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"__complete doc":                              "doctor",
		"__complete doctor --color ":                  "always",
		"__complete proxyconfig --format sys":         "systemd",
		"__complete noproxy lint --for u":             "undici",
		"__complete noproxy cluster --layout giantsw": "giantswarm",
		"completion bash":                             "__start_causeway",
	} {
		fields := strings.Fields(args)
		if strings.HasSuffix(args, " ") {
			fields = append(fields, "")
		}
		if out, err := run(t, fields...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: got %v and %q, want %s", args, err, out, want)
		}
	}
}

// A variable counts unless its flag is given.
func TestVariables(t *testing.T) {
	t.Setenv("CAUSEWAY_LIST", "example.com")
	t.Setenv("CAUSEWAY_JSON", "true")
	if out, err := run(t, "noproxy", "explain", "example.com"); err != nil || !strings.Contains(out, `"bypass": true`) {
		t.Errorf("got %v and %s", err, out)
	}
	if out, err := run(t, "noproxy", "explain", "--list", "x", "--json=false", "example.com"); err != nil || !strings.Contains(out, "through the proxy") {
		t.Errorf("got %v and %s", err, out)
	}
}
