package noproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/noproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(t *testing.T, args []string, out io.Writer) error {
	t.Helper()
	_, err := command.Execute(t.Context(), Command(), args, nil, out, io.Discard)
	return err
}

func TestRun(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
		err  error
	}{
		{"explain", []string{"explain", "--list", ".svc,10.96.0.0/12,example.com:8443", "https://10.96.0.1/", "example.com:443", "a.svc", "::1", "[fd00::1]"}, `
TARGET           VERDICT            ENTRY  TEXT          REASON
10.96.0.1:443    direct             1      10.96.0.0/12  an address of the network
example.com:443  through the proxy  -      -             no entry covers it; entry 2 "example.com:8443" is for port 8443 only
a.svc            direct             0      .svc          a name below it
::1              direct             -      -             localhost and loopback addresses are never proxied
fd00::1          through the proxy  -      -             no entry covers it
`, nil},
		{"explain an empty list", []string{"explain", "--list", "", "http://u:hunter2@a.com"}, `
TARGET    VERDICT            ENTRY  TEXT  REASON
a.com:80  through the proxy  -      -     no entry covers it
`, nil},
		{"lint", []string{"lint", "--for", "wget, jvm", "--list", "localhost,127.0.0.1,::1,10.96.0.0/12"}, `
CONSUMER  ENTRY  TEXT          DOES                                                                        WRITE
jvm       0      localhost     sends https://www.localhost/ through the proxy, where Go connects directly  "localhost|*.localhost" for it
wget      3      10.96.0.0/12  sends https://10.96.0.0/ through the proxy, where Go connects directly      the addresses that matter, one by one
jvm       3      10.96.0.0/12  sends https://10.96.0.0/ through the proxy, where Go connects directly      "10.96.*|...|10.111.*" for it, which also covers names that begin with the same numbers
`, cli.ErrFailed},
		{"lint without findings", []string{"lint", "--for", "curl,requests", "--list", "localhost,127.0.0.1,::1,svc,10.96.0.0/12"}, `
no findings
`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t, tt.args, &out); !errors.Is(err, tt.err) {
				t.Errorf("error: got %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, "\n"+out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// A long entry does not make all rows as wide.
func TestLintLongEntry(t *testing.T) {
	var out bytes.Buffer
	list := strings.Repeat("*.a,", 500) + strings.Repeat("a", 60_000)
	if err := run(t, []string{"lint", "--list", list}, &out); !errors.Is(err, cli.ErrFailed) || out.Len() > 4<<20 {
		t.Errorf("got %v with %d bytes, want findings with 4 MiB at most", err, out.Len())
	}
}

func TestRunJSON(t *testing.T) {
	var explained []noproxy.Explanation
	runJSON(t, &explained, nil, "explain", "--json", "--list", "example.com", "example.com:443", "example.org:80")
	rules := noproxy.Parse("example.com")
	want := []noproxy.Explanation{rules.Explain("example.com", "443"), rules.Explain("example.org", "80")}
	if diff := cmp.Diff(want, explained); diff != "" {
		t.Errorf("explain (-want +got):\n%s", diff)
	}

	var findings []noproxy.Finding
	runJSON(t, &findings, cli.ErrFailed, "lint", "--json", "--list", ".example.com", "--for", "curl")
	if diff := cmp.Diff(noproxy.Lint(".example.com", noproxy.Curl), findings); diff != "" {
		t.Errorf("lint (-want +got):\n%s", diff)
	}
	runJSON(t, &findings, nil, "lint", "--json", "--list", "", "--for", "go")
	if findings == nil || len(findings) != 0 {
		t.Errorf("lint without findings: got %v, want an empty array", findings)
	}
}

func runJSON(t *testing.T, into any, want error, args ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t, args, &out); !errors.Is(err, want) {
		t.Fatalf("run(%q): got %v, want %v", args, err, want)
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		t.Fatalf("run(%q): %v in %s", args, err, out.String())
	}
}

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{nil, "COMMAND is missing"},
		{[]string{"explode"}, `unknown command "explode"`},
		{[]string{"explan"}, `unknown command "explan": did you mean explain?`},
		{[]string{"explain", "a.com"}, "--list must be set"},
		{[]string{"explain", "--list", "a.com"}, "TARGET is missing, such as example.com:443"},
		{[]string{"explain", "--list", "a.com", "a b"}, "a target is a host, host:port or URL"},
		{[]string{"explain", "--list", "a.com", "u:hunter2@a.com"}, "a target is a host, host:port or URL"},
		{[]string{"explain", "--list", "a.com", ""}, "a target is a host, host:port or URL"},
		{[]string{"explain", "--list", "a.com", "a.com:https"}, `target "a.com:https" is not a host and a port`},
		{[]string{"explain", "--list", "a.com", ":443"}, `target ":443" is not a host and a port`},
		{[]string{"explain", "--list", "a.com", "https://u:hunter2@"}, "a target is not a URL with a host"},
		{[]string{"explain", "--lists", "a.com"}, "unknown flag --lists"},
		{[]string{"explain", "-list", "a.com", "a.com"}, "unknown flag -list: flags have two dashes: --list"},
		{[]string{"lint"}, "--list must be set"},
		{[]string{"lint", "--list", strings.Repeat("a,", 3000) + strings.Repeat("::1 ", 500)}, "--list has 4501 parts"},
		{[]string{"lint", "--list", "a.com", "b.com"}, `unexpected argument "b.com"`},
		{[]string{"lint", "--list", "a.com", "--for", "curl,netscape"}, `--for: noproxy: unknown consumer "netscape", want one of [go curl wget urllib requests ruby undici jvm]`},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var out bytes.Buffer
			err := run(t, tt.args, &out)
			var mistake cli.UsageError
			if !errors.As(err, &mistake) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want usage error %q", err, tt.want)
			}
			if out.Len() > 0 {
				t.Errorf("stdout: got %q, want nothing", out.String())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"explain", "-h"}, {"lint", "-h"}} {
		var out bytes.Buffer
		if err := run(t, args, &out); err != nil || !strings.Contains(out.String(), "--list") {
			t.Errorf("run(%q): got %v and %q", args, err, out.String())
		}
	}
}

// What an entry that covers nothing was meant for goes to the proxy: explain says so, and
// its answers stay the same.
func TestExplainUnusable(t *testing.T) {
	for _, tt := range []struct {
		name, list, entry, want string
	}{
		{"networks and a URL", "10.0.0.0/99,10.1.1.1,http://u:hunter2@a.com,10.0.0.0/33", "1", `warning: entry 0 "10.0.0.0/99" covers nothing: not a network; write an address, a slash and a length that fits it
warning: entry 2 "http://redacted" covers nothing: a URL or credentials; write the host alone
warning: entry 3 "10.0.0.0/33" covers nothing: not a network; write an address, a slash and a length that fits it
`},
		{"only usable ones", "10.0.0.0/8", "0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, stderr bytes.Buffer
			_, err := command.Execute(t.Context(), Command(), []string{"explain", "--json", "--list", tt.list, "10.1.1.1"}, nil, &out, &stderr)
			if err != nil || !strings.Contains(out.String(), `"index": `+tt.entry) || !json.Valid(out.Bytes()) {
				t.Errorf("got %v, %s; want entry %s", err, &out, tt.entry)
			}
			if diff := cmp.Diff(tt.want, stderr.String()); diff != "" {
				t.Errorf("want - got +:\n%s", diff)
			}
		})
	}
}

// Lists come from charts and files of others: what does not print is shown as escapes.
func TestForeignCharacters(t *testing.T) {
	const list = "a\u009b31m.example,b\u202e.example,\x1b]0;x\a.example,c\u200b.example"
	for _, args := range [][]string{
		{"lint", "--list", list}, {"lint", "--list", list, "--json"},
		{"explain", "--list", list, "d\u202e.example"}, {"explain", "--list", list, "d\u202e.example", "--json"},
	} {
		var out bytes.Buffer
		if err := run(t, args, &out); err != nil && !errors.Is(err, cli.ErrFailed) {
			t.Fatal(err)
		}
		if text := out.String(); strings.ContainsAny(text, "\u009b\u202e\x1b\a\u200b") || !strings.Contains(text, `\u202e`) {
			t.Errorf("%q: got %q, want escapes", args[0], text)
		}
	}
}
