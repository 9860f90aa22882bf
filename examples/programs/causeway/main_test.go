package main

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
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
// one of an invitation's, or another flag's.
func TestCommands(t *testing.T) {
	ports, variables := map[string]string{"8081": "causeway-agent"}, map[string]string{}
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
			name := cli.Variable(strings.TrimPrefix(cmd.CommandPath(), "causeway "), f)
			if slices.Contains([]string{"CAUSEWAY_SERVERS", "CAUSEWAY_CLUSTER", "CAUSEWAY_TOKEN", "CAUSEWAY_PIN", "CAUSEWAY_EXPIRES"}, name) {
				t.Errorf("%s: the variable of --%s is an invitation's", cmd.CommandPath(), f.Name)
			}
			if of := variables[name]; of != "" && !slices.Contains([]string{"CAUSEWAY_SERVER_STATE", "CAUSEWAY_SERVER_SECRETS", "CAUSEWAY_SERVER_KUBECONFIG", "CAUSEWAY_SERVER_GATEWAY"}, name) {
				t.Errorf("%s and %s: got %s twice", of, cmd.CommandPath(), name)
			}
			variables[name] = cmd.CommandPath()
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
		for _, want := range []string{"\n  doctor  ", "Run in a cluster:\n", "\n  injector  ", "CAUSEWAY_SERVER_DOOR_CERT", "status 0", "causeway COMMAND"} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%q: got %v and no %q in\n%s", args, err, want, out)
			}
		}
	}
	out, err := run(t, "provider", "--help")
	if err != nil || !strings.Contains(out, "--log-format text|json") || !strings.Contains(out, "causeway provider [flags]") {
		t.Errorf("got %v and\n%s", err, out)
	}
}

func TestMistakes(t *testing.T) {
	t.Setenv("CAUSEWAY_DOCTOR_TIMEOUT", "canary")
	for _, tt := range []struct{ args, want string }{
		{"", "COMMAND is missing"},
		{"doktor", `unknown command "doktor": did you mean doctor?`},
		{"frobnicate", `unknown command "frobnicate"`},
		{"noproxy lnt", `unknown command "lnt": did you mean lint?`},
		{"doctor", "the variable CAUSEWAY_DOCTOR_TIMEOUT is not a value of --timeout: want duration"},
		{"doctor x", `unexpected argument "x"; usage: causeway doctor [flags]`},
		{"injector -health :1", "unknown flag -health: flags have two dashes"},
		{"injector -drain 1s", "unknown flag -drain: flags have two dashes: --drain"},
		{"injector --helth :1", "unknown flag --helth"},
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

// A value that can't work is refused at the start, with the flag's name.
func TestFlagValues(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"provider --workers -1", "--workers must be more than zero"},
		{"provider --interval 0", "--interval must be more than zero"},
		{"provider --grace 0", "--grace must be more than zero"},
		{"provider --tls-server-name a\tb", "--tls-server-name: holds a space"},
		{"provider --namespace A_B", `--namespace "A_B" is not`},
		{"provider --leader-election A_B", `--leader-election "A_B" is not`},
		{"provider --name ", "--name must be set"},
		{"provider --health bad --kubeconfig " + config, `--health: "bad" is not HOST:PORT: missing port in address`},
		{"provider --proxy-url http://u:canary@h", "--proxy-url: holds user info"},
		{"provider --gateway ftp://x", `--gateway: the scheme "ftp"`},
		{"propagator --workers 0", "--workers must be more than zero"},
		{"propagator --namespace A_B", `--namespace "A_B" is not`},
		{"propagator --leader-election A_B", `--leader-election "A_B" is not`},
		{"propagator --managed-by ", "--managed-by must be set"},
		{"propagator --managed-by a\tb", "--managed-by: a valid label"},
		{"propagator --node-cidr x", `--node-cidr entry 0 "x"`},
		{"propagator --service-cidr x --pod-cidr y", `--service-cidr entry 0 "x": not a network such as 10.0.0.0/8 or 2001:db8::/32; --pod-cidr entry 0 "y"`},
		{"server --grace -1s", "--grace must not be less than zero"},
		{"proxyconfig --pods x --services y", `--services entry 0 "y": not a network such as 10.0.0.0/8 or 2001:db8::/32; --pods entry 0 "x"`},
		{"proxyconfig --https u:canary@h", "--https: "},
		{"proxyconfig --no-proxy http://u:canary@h", "--no-proxy: "},
		{"proxyconfig --pods 10.0.0.0/33", `--pods entry 0 "10.0.0.0/33"`},
		{"proxyconfig --cloud aws", `--region "": required`},
		{"proxyconfig --https http://h:1 --format values --name A_B", "--name: "},
	} {
		_, err := run(t, strings.Split(tt.args, " ")...)
		var mistake cli.UsageError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: got %v, want %q", tt.args, err, tt.want)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// Help that can't be written is an error.
func TestHelpNotWritten(t *testing.T) {
	for _, args := range []string{"--help", "help doctor", "provider --help"} {
		if _, err := command.Execute(t.Context(), newRoot(), strings.Fields(args), nil, fullDisk{}, io.Discard); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%s: got %v, want %v", args, err, io.ErrShortWrite)
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
		"__complete doc":                          "doctor",
		"__complete proxyconfig --credentials ":   "machines",
		"__complete proxyconfig --format sys":     "systemd",
		"__complete noproxy lint --for u":         "undici",
		"__complete proxyconfig --layout giantsw": "giantswarm",
		"completion bash":                         "__start_causeway",
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
	t.Setenv("CAUSEWAY_NOPROXY_EXPLAIN_LIST", "example.com")
	t.Setenv("CAUSEWAY_NOPROXY_EXPLAIN_JSON", "true")
	if out, err := run(t, "noproxy", "explain", "example.com"); err != nil || !strings.Contains(out, `"bypass": true`) {
		t.Errorf("got %v and %s", err, out)
	}
	if out, err := run(t, "noproxy", "explain", "--list", "x", "--json=false", "example.com"); err != nil || !strings.Contains(out, "through the proxy") {
		t.Errorf("got %v and %s", err, out)
	}
}

// The variables of other commands do not count; those of former versions, without the command,
// count last, and a warning names the new one.
func TestVariablesByCommand(t *testing.T) {
	for _, tt := range []struct {
		name, args, want, warning string
		env                       map[string]string
	}{
		{"another command's", "noproxy explain --list x example.com", "through the proxy", "",
			map[string]string{"CAUSEWAY_NOPROXY_LINT_LIST": "example.com", "CAUSEWAY_PROXYCONFIG_NO_PROXY": "example.com"}},
		{"the former", "noproxy explain example.com", "direct", "CAUSEWAY_LIST is taken for --list: write CAUSEWAY_NOPROXY_EXPLAIN_LIST",
			map[string]string{"CAUSEWAY_LIST": "example.com\n"}},
		{"both", "noproxy explain example.com", "through the proxy", "CAUSEWAY_LIST is ignored, as CAUSEWAY_NOPROXY_EXPLAIN_LIST counts",
			map[string]string{"CAUSEWAY_LIST": "example.com", "CAUSEWAY_NOPROXY_EXPLAIN_LIST": "x"}},
		{"both, the new one empty", "noproxy explain example.com", "through the proxy", "CAUSEWAY_LIST is ignored",
			map[string]string{"CAUSEWAY_LIST": "example.com", "CAUSEWAY_NOPROXY_EXPLAIN_LIST": ""}},
		{"the former, and the flag", "noproxy explain --list x example.com", "through the proxy", "", map[string]string{"CAUSEWAY_LIST": "example.com"}},
		{"the former of another flag", "noproxy explain --list x example.com", "through the proxy", "", map[string]string{"CAUSEWAY_NO_PROXY": "example.com"}},
		{"a provider in a shell that was made ready for proxyconfig", "provider --health bad --kubeconfig /no/such", "", "",
			map[string]string{"CAUSEWAY_PROXYCONFIG_NO_PROXY": "canary"}},
		{"the same in a shell of before", "provider --health bad --kubeconfig /no/such", "",
			"CAUSEWAY_NO_PROXY is taken for --no-proxy: write CAUSEWAY_PROVIDER_NO_PROXY", map[string]string{"CAUSEWAY_NO_PROXY": "canary"}},
		{"the server's state, for kubectl exec", "ticket a", "", "", map[string]string{"CAUSEWAY_SERVER_STATE": "/no/canary"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			var out, warnings strings.Builder
			_, err := command.Execute(t.Context(), newRoot(), strings.Fields(tt.args), nil, &out, &warnings)
			if tt.want != "" && (err != nil || !strings.Contains(out.String(), tt.want)) || !strings.Contains(warnings.String(), tt.warning) || tt.warning == "" && warnings.Len() > 0 {
				t.Errorf("got %v, output %q and warnings %q, want %q and %q", err, &out, &warnings, tt.want, tt.warning)
			}
			if strings.Contains(warnings.String(), "canary") {
				t.Errorf("the value is in %q", &warnings)
			}
			if strings.HasPrefix(tt.args, "ticket") && !strings.Contains(err.Error(), "/no/canary") {
				t.Errorf("got %v, want another state", err)
			}
		})
	}
}
