package proxyconfig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

func TestValidURLs(t *testing.T) {
	valid := []string{
		"", "http://proxy", "http://proxy/", "https://proxy.test:1", "socks5://10.0.0.1:65535", "socks5h://[::1]:1080",
		"http://user@proxy:3128", "http://user:@proxy:3128", "http://a_b-c.test:80", "http://u:a$b@proxy:3128", "http://u:a$@proxy:3128",
	}
	for _, u := range urls {
		valid = append(valid, u.url)
	}
	for _, u := range valid {
		c := config(u)
		before := c
		if err := c.Validate(); err != nil {
			t.Errorf("%q: %v", u, err)
		}
		if c != before {
			t.Errorf("%q was changed", u)
		}
	}
}

func TestInvalidURLs(t *testing.T) {
	const escape = "percent-encode"
	for _, c := range []struct{ name, url, want string }{
		{"at sign", "http://user:SECRET@x@proxy:3128", escape},
		{"colon", "http://user:SECRET:x@proxy:3128", escape},
		{"slash", "http://user:SECRET/x@proxy:3128", escape},
		{"question mark", "http://user:SECRET?x@proxy:3128", escape},
		{"hash", "http://user:SECRET#x@proxy:3128", escape},
		{"percent", "http://user:SECRET%x@proxy:3128", escape},
		{"space", "http://user:SECRET x@proxy:3128", escape},
		{"quote", "http://user:SECRET\"x@proxy:3128", escape},
		{"backslash", "http://user:SECRET\\x@proxy:3128", escape},
		{"backquote", "http://user:SECRET`x@proxy:3128", escape},
		{"brace", "http://user:SECRET${x}@proxy:3128", escape},
		{"not ASCII", "http://user:SECRETé@proxy:3128", escape},
		{"newline", "http://user:SECRET\n@proxy:3128", escape},
		{"encoded newline", "http://user:SECRET%0A@proxy:3128", "control character"},
		{"encoded NUL", "http://user%00:SECRET@proxy:3128", "control character"},
		{"what Kubernetes reduces", "http://user:SECRET$$@proxy:3128", "write $ as %24"},
		{"what Kubernetes expands", "http://user:SECRET$(HOME)@proxy:3128", "write $ as %24"},
		{"a lone at sign", "http://@proxy:3128", "no user name"},
		{"no user", "http://:SECRET@proxy:3128", "no user name"},
		{"no scheme", "user:SECRET@proxy:3128", "scheme"},
		{"no slashes", "http:user:SECRET@proxy:3128", "scheme"},
		{"host alone", "proxy:3128", "scheme"},
		{"unknown scheme", "ftp://user:SECRET@proxy:3128", "scheme"},
		{"upper case", "HTTP://user:SECRET@proxy:3128", "lower case"},
		{"path", "http://user:SECRET@proxy:3128/x", "more than a host"},
		{"empty fragment", "http://user:SECRET@proxy:3128#", "more than a host"},
		{"empty query", "http://user:SECRET@proxy:3128?", "more than a host"},
		{"no host", "http://user:SECRET@", "no host"},
		{"port alone", "http://user:SECRET@:3128", "host is neither"},
		{"quote in the host", "http://pro\"xy:3128", "host is neither"},
		{"international host", "http://bücher.test:3128", "host is neither"},
		{"zone", "http://[fe80::1%25eth0]:3128", "zone"},
		{"not an IPv6 address", "http://[10.0.0.1]:3128", "want scheme"},
		{"empty port", "http://proxy:", "port"},
		{"port 0", "http://proxy:0", "port"},
		{"port 65536", "http://proxy:65536", "port"},
		{"long", "http://user:SECRET@" + strings.Repeat("a", 128<<10) + ":3128", "bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := proxyconfig.Config{HTTPProxy: c.url, HTTPSProxy: c.url}
			before := got
			err := got.Validate()
			var field *proxyconfig.FieldError
			if !errors.As(err, &field) || field.Field != "HTTPProxy" || !strings.Contains(err.Error(), "proxyconfig: HTTPSProxy: ") {
				t.Fatalf("got error %v, want one for each field", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %q, want %q in it", err, c.want)
			}
			if strings.Contains(err.Error()+got.String(), "SECRET") {
				t.Errorf("the password is in %q or %q", err, got)
			}
			if got != before {
				t.Error("the configuration was changed")
			}
		})
	}
}

func TestInvalidLists(t *testing.T) {
	for _, c := range []struct{ name, list, want string }{
		{"newline", "a.test\nb.test", "0x0a"},
		{"tab", "a.test,\tb.test", "0x09"},
		{"DEL", "a\x7f", "0x7f"},
		{"not ASCII", "bücher.test", "xn--"},
		{"URL", "http://a.test", "write hosts alone"},
		{"credentials", "user:SECRET@a.test", "write hosts alone"},
		{"quote", `"a.test"`, "no host has"},
		{"single quote", "a'", "no host has"},
		{"dollar", "$HOME", "no host has"},
		{"backslash", `a\`, "no host has"},
		{"backquote", "`a`", "no host has"},
		{"template", "{{a}}", "cloud-init"},
		{"template statement", "{%a", "cloud-init"},
		{"template comment", "a,{#b", "cloud-init"},
		{"long", strings.Repeat("a,", 64<<10), "bytes"},
	} {
		got := proxyconfig.Config{NoProxy: c.list}
		err := got.Validate()
		var field *proxyconfig.FieldError
		if !errors.As(err, &field) || field.Field != "NoProxy" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q for NoProxy", c.name, err, c.want)
		}
		if got.Redacted().NoProxy != "(invalid list)" {
			t.Errorf("%s: got %q, want it hidden", c.name, got.Redacted().NoProxy)
		}
	}
	for _, list := range []string{"", golden, "a.test, b.test", "[::1]:80,fe80::1%eth0,*.a.test,*", "no such thing;"} {
		if err := (proxyconfig.Config{NoProxy: list}).Validate(); err != nil {
			t.Errorf("%q: %v", list, err)
		}
	}
}

func TestLintHasFindingsAndNoErrors(t *testing.T) {
	c := proxyconfig.Config{NoProxy: "10.0.0.0/8"}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if got := c.Lint(noproxy.Wget); len(got) == 0 || got[0].Consumer != noproxy.Wget {
		t.Errorf("got %v, want a finding: wget knows no networks", got)
	}
	if got := c.Lint(noproxy.Curl); slices.ContainsFunc(got, func(f noproxy.Finding) bool { return f.Consumer != noproxy.Curl || f.Index >= 0 }) {
		t.Errorf("got %v, want none about the entry for curl", got)
	}
}

func TestRedacted(t *testing.T) {
	for _, c := range []struct{ url, redacted, without string }{
		{"", "", ""},
		{rfcProxy, "http://redacted@192.168.52.220:3128", "http://192.168.52.220:3128"},
		{"socks5://proxy:1080", "socks5://proxy:1080", "socks5://proxy:1080"},
		{"http://user:a@b@proxy:3128", "(invalid proxy URL)", "http://proxy:3128"},
	} {
		got := proxyconfig.Config{HTTPProxy: c.url, HTTPSProxy: c.url, NoProxy: "a.test"}
		if want := (proxyconfig.Config{HTTPProxy: c.redacted, HTTPSProxy: c.redacted, NoProxy: "a.test"}); !cmp.Equal(got.Redacted(), want) {
			t.Errorf("Redacted: got %v, want %v", got.Redacted(), want)
		}
		if want := (proxyconfig.Config{HTTPProxy: c.without, HTTPSProxy: c.without, NoProxy: "a.test"}); got.WithoutCredentials() != want {
			t.Errorf("WithoutCredentials of %s is not %s", c.redacted, c.without)
		}
	}
}

func TestEnv(t *testing.T) {
	c := proxyconfig.Config{HTTPProxy: "http://a:1", HTTPSProxy: "http://b:2", NoProxy: "c"}
	want := []proxyconfig.Var{
		{"HTTP_PROXY", "http://a:1"}, {"http_proxy", "http://a:1"}, {"HTTPS_PROXY", "http://b:2"}, {"https_proxy", "http://b:2"}, {"NO_PROXY", "c"}, {"no_proxy", "c"},
	}
	if diff := cmp.Diff(want, c.Env()); diff != "" {
		t.Error(diff)
	}
	if got := (proxyconfig.Config{}).Env(); len(got) != 0 {
		t.Errorf("got %v of nothing, want none", got)
	}
	plain := []corev1.EnvVar{
		{Name: "HTTPS_PROXY", Value: "http://b:2"}, {Name: "https_proxy", Value: "http://b:2"}, {Name: "NO_PROXY", Value: "c"}, {Name: "no_proxy", Value: "c"},
	}
	c.HTTPProxy = ""
	if diff := cmp.Diff(plain, c.EnvVars()); diff != "" {
		t.Error(diff)
	}
}

func TestEnvVarsFrom(t *testing.T) {
	c := proxyconfig.Config{HTTPSProxy: rfcProxy, NoProxy: "c"}
	from := func(name, key string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "proxy"}, Key: key,
		}}}
	}
	got := c.EnvVarsFrom("proxy", false)
	want := []corev1.EnvVar{from("HTTPS_PROXY", "HTTPS_PROXY"), from("https_proxy", "HTTPS_PROXY"), from("NO_PROXY", "NO_PROXY"), from("no_proxy", "NO_PROXY")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	data := c.EnvSecretData()
	for _, e := range got {
		if _, ok := data[e.ValueFrom.SecretKeyRef.Key]; !ok {
			t.Errorf("%s refers to %s, which the Secret does not have", e.Name, e.ValueFrom.SecretKeyRef.Key)
		}
	}
	if diff := cmp.Diff(map[string][]byte{"HTTPS_PROXY": []byte(rfcProxy), "NO_PROXY": []byte("c")}, data); diff != "" {
		t.Error(diff)
	}
	if got[0].ValueFrom == got[1].ValueFrom {
		t.Error("two variables share a source: who changes one changes the other")
	}
	want = append(want[:2:2], corev1.EnvVar{Name: "NO_PROXY", Value: "c"}, corev1.EnvVar{Name: "no_proxy", Value: "c"})
	if diff := cmp.Diff(want, c.EnvVarsFrom("proxy", true)); diff != "" {
		t.Error(diff)
	}
}
