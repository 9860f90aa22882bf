package proxyconfig_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpproxy"

	"github.com/causewayproject/causeway/proxyconfig"
)

// Go programs, containerd and the kubelet among them, send the password that was
// meant.
func TestGoReadsThePassword(t *testing.T) {
	for _, u := range urls {
		c := config(u.url)
		fromEnv := (&httpproxy.Config{HTTPProxy: c.HTTPProxy, HTTPSProxy: c.HTTPSProxy, NoProxy: c.NoProxy}).ProxyFunc()
		proxy := must(fromEnv(&url.URL{Scheme: "https", Host: "far.test"}))(t)
		if got, _ := proxy.User.Password(); got != u.password {
			t.Errorf("%s: got %q, want %q", u.name, got, u.password)
		}
		r := &http.Request{Header: http.Header{}}
		r.SetBasicAuth(proxy.User.Username(), u.password)
		if _, got, _ := r.BasicAuth(); got != u.password {
			t.Errorf("%s: got %q by Basic, want %q", u.name, got, u.password)
		}
	}
}

// sh runs a script and returns its output.
func sh(t testing.TB, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-eu", "-s")
	cmd.Stdin, cmd.Env = strings.NewReader(script), []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("sh: %v\n%s\n%s", err, out, script)
	}
	return string(out)
}

func TestShellReadsTheExports(t *testing.T) {
	for _, u := range urls {
		c := config(u.url)
		var want strings.Builder
		for _, v := range c.Env() {
			fmt.Fprintf(&want, "%s=%s\n", v.Name, v.Value)
		}
		got := sh(t, must(c.ShellExports())(t)+"env | grep -i _proxy= | sort -t= -k1,1 -s\n")
		if diff := cmp.Diff(sorted(want.String()), sorted(got)); diff != "" {
			t.Errorf("%s: %s", u.name, diff)
		}
	}
}

// sorted returns the lines as a set.
func sorted(text string) map[string]bool {
	lines := map[string]bool{}
	for line := range strings.Lines(text) {
		lines[line] = true
	}
	return lines
}

func TestSystemdRulesReadTheDropIn(t *testing.T) {
	for _, u := range urls {
		c := config(u.url)
		got := must(readDropIn(must(c.SystemdDropIn())(t)))(t)
		if diff := cmp.Diff(c.Env(), got); diff != "" {
			t.Errorf("%s: %s", u.name, diff)
		}
	}
}

// readDropIn reads what SystemdDropIn writes by systemd's rules, and nothing
// else.
func readDropIn(text string) ([]proxyconfig.Var, error) {
	rest, ok := strings.CutPrefix(text, "[Service]\n")
	if !ok {
		return nil, errors.New("no section")
	}
	var vars []proxyconfig.Var
	for line := range strings.Lines(rest) {
		word, ok := strings.CutPrefix(line, "Environment=")
		if !ok || !strings.HasSuffix(word, "\n") {
			return nil, fmt.Errorf("no assignment: %q", line)
		}
		// What else a word may have is tested where the encoder is.
		quoted := strings.HasPrefix(word, `"`) && strings.HasSuffix(word, "\"\n")
		assignment := strings.ReplaceAll(strings.Trim(word, "\"\n"), "%%", "\x00")
		if !quoted || strings.ContainsAny(assignment, `%\"`) {
			return nil, fmt.Errorf("not a word: %q", word)
		}
		assignment = strings.ReplaceAll(assignment, "\x00", "%")
		name, value, ok := strings.Cut(assignment, "=")
		if !ok {
			return nil, fmt.Errorf("no variable: %q", assignment)
		}
		vars = append(vars, proxyconfig.Var{Name: name, Value: value})
	}
	return vars, nil
}

// What is valid comes through as it is, whatever it is.
func FuzzConfig(f *testing.F) {
	for _, u := range urls {
		f.Add(u.url, golden)
	}
	f.Add("http://a:b@c@d:1", "\"")
	f.Add("http://%27$'@d", "%,a'b")
	f.Add("", "0")
	f.Fuzz(func(t *testing.T, proxy, list string) {
		c := proxyconfig.Config{HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: list}
		if c.Validate() != nil {
			return
		}
		u, err := url.Parse(proxy)
		if err != nil || strings.ContainsAny(proxy+list, "\"\\`\n") || strings.Contains(list, "@") {
			t.Fatalf("valid, but not fit for all: %q, %q, %v", proxy, list, err)
		}
		got, err := readDropIn(must(c.SystemdDropIn())(t))
		if diff := cmp.Diff(c.Env(), got); err != nil || diff != "" {
			t.Errorf("systemd: %v %s", err, diff)
		}
		v := proxyconfig.ClusterValues{Name: "a", Namespace: "b", Config: c}
		o, err := v.Build()
		var refused *proxyconfig.FieldError
		if err == nil {
			back, err := proxyconfig.ReadValues(o.Secret.Data[proxyconfig.ValuesKey])
			if err != nil || back != c {
				t.Errorf("values: got %v and error %v", back, err)
			}
		} else if !errors.As(err, &refused) || refused.Field != "Config.NoProxy" { // charts don't quote it
			t.Errorf("values: %v", err)
		}
		if bare := c.WithoutCredentials(); bare.Validate() != nil {
			t.Errorf("without credentials it is not valid: %v", bare.Validate())
		} else if b, err := url.Parse(bare.HTTPProxy); err != nil || b.User != nil || b.Host != u.Host {
			t.Errorf("got the host %q without credentials, want %q", b.Host, u.Host)
		}
	})
}
