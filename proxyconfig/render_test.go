package proxyconfig_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// renderings are those that are one text.
var renderings = []struct {
	name   string
	render func(proxyconfig.Config) (string, error)
}{
	{"systemd", proxyconfig.Config.SystemdDropIn},
	{"sh", proxyconfig.Config.ShellExports},
	{"docker env", proxyconfig.Config.DockerEnvFile},
	{"docker", proxyconfig.Config.DockerConfig},
	{"jvm", func(c proxyconfig.Config) (string, error) { text, _, err := c.JVMArguments(); return text, err }},
}

func TestRenderings(t *testing.T) {
	c := proxyconfig.Config{HTTPProxy: "http://u:a'%40$;@a:1", HTTPSProxy: "http://b", NoProxy: ".c.test,d.test,10.0.0.1,10.0.0.0/8,a b"}
	for i, want := range []string{
		`[Service]
Environment="HTTP_PROXY=http://u:a'%%40$;@a:1"
Environment="http_proxy=http://u:a'%%40$;@a:1"
Environment="HTTPS_PROXY=http://b"
Environment="https_proxy=http://b"
Environment="NO_PROXY=.c.test,d.test,10.0.0.1,10.0.0.0/8,a b"
Environment="no_proxy=.c.test,d.test,10.0.0.1,10.0.0.0/8,a b"
`, `export HTTP_PROXY='http://u:a'\''%40$;@a:1'
export http_proxy='http://u:a'\''%40$;@a:1'
export HTTPS_PROXY='http://b'
export https_proxy='http://b'
export NO_PROXY='.c.test,d.test,10.0.0.1,10.0.0.0/8,a b'
export no_proxy='.c.test,d.test,10.0.0.1,10.0.0.0/8,a b'
`, `HTTP_PROXY=http://u:a'%40$;@a:1
http_proxy=http://u:a'%40$;@a:1
HTTPS_PROXY=http://b
https_proxy=http://b
NO_PROXY=.c.test,d.test,10.0.0.1,10.0.0.0/8,a b
no_proxy=.c.test,d.test,10.0.0.1,10.0.0.0/8,a b
`, `{
  "proxies": {
    "default": {
      "httpProxy": "http://u:a'%40$;@a:1",
      "httpsProxy": "http://b",
      "noProxy": ".c.test,d.test,10.0.0.1,10.0.0.0/8,a b"
    }
  }
}
`, `"-Dhttp.proxyHost=a"
"-Dhttp.proxyPort=1"
"-Dhttp.proxyUser=u"
"-Dhttp.proxyPassword=a'@$;"
"-Dhttps.proxyHost=b"
"-Dhttps.proxyPort=80"
"-Dhttp.nonProxyHosts=*.c.test|d.test|*.d.test|10.0.0.1|10.*"
`,
	} {
		got := must(renderings[i].render(c))(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", renderings[i].name, diff)
		}
	}
}

func TestRenderingsOfNothing(t *testing.T) {
	want := map[string]string{"systemd": "[Service]\n", "docker": "{\n  \"proxies\": {\n    \"default\": {}\n  }\n}\n"}
	for _, r := range renderings {
		if got := must(r.render(proxyconfig.Config{}))(t); got != want[r.name] {
			t.Errorf("%s: got %q, want %q", r.name, got, want[r.name])
		}
	}
}

// What is not valid is in no rendering, a part of it included.
func TestRenderingsRefuseTheInvalid(t *testing.T) {
	for _, r := range renderings {
		for _, c := range []proxyconfig.Config{{HTTPProxy: "http://u:SECRET@x@a:1"}, {HTTPSProxy: "http://u:SECRET\"@a:1"}, {NoProxy: "a\nb"}} {
			text, err := r.render(c)
			var field *proxyconfig.FieldError
			if text != "" || !errors.As(err, &field) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s: got %q and %v, want a *FieldError alone", r.name, text, err)
			}
		}
	}
}

func TestRefusalsOfTools(t *testing.T) {
	for _, c := range []struct {
		tool   string
		config proxyconfig.Config
		want   string // field of the error
	}{
		{"jvm", proxyconfig.Config{HTTPProxy: "https://a:1"}, "HTTPProxy"},
		{"jvm", proxyconfig.Config{HTTPSProxy: "https://a:1"}, "HTTPSProxy"},
		{"jvm", proxyconfig.Config{HTTPProxy: "socks5://a:1", HTTPSProxy: "socks5://b:1"}, "HTTPSProxy"},
		{"jvm", proxyconfig.Config{HTTPProxy: "socks5://a:1", HTTPSProxy: "socks5://a:1"}, ""},
		{"jvm", proxyconfig.Config{HTTPProxy: "http://u:%C3%A9SECRET@a:1"}, "HTTPProxy"},
		{"jvm", proxyconfig.Config{HTTPSProxy: "socks5://%FF:SECRET@a:1"}, "HTTPSProxy"},
		{"docker env", proxyconfig.Config{NoProxy: strings.Repeat("x", 64<<10-len("NO_PROXY=\n")+1)}, "NoProxy"},
		{"docker env", proxyconfig.Config{HTTPSProxy: "http://u:" + strings.Repeat("SECRET", 12000) + "@a:1"}, "HTTPSProxy"},
	} {
		for _, r := range renderings {
			if r.name != c.tool {
				continue
			}
			text, err := r.render(c.config)
			var field *proxyconfig.FieldError
			switch got := errors.As(err, &field); {
			case c.want == "" && (err != nil || text == ""):
				t.Errorf("%s of %v: got error %v", c.tool, c.config, err)
			case c.want != "" && (!got || field.Field != c.want || text != "" || strings.Contains(err.Error(), "SECRET")):
				t.Errorf("%s of %v: got %q and error %v, want one for %s", c.tool, c.config, text, err, c.want)
			}
		}
	}
}

func TestJVM(t *testing.T) {
	c := proxyconfig.Config{HTTPProxy: "socks5://us%40er:" + encode(hostile) + "@a", HTTPSProxy: "http://[::1]", NoProxy: "a.test,10.128.0.0/9"}
	got, findings, err := c.JVMProperties()
	if err != nil {
		t.Fatal(err)
	}
	want := []proxyconfig.Var{
		{"socksProxyHost", "a"}, {"socksProxyPort", "1080"}, {"java.net.socks.username", "us@er"}, {"java.net.socks.password", hostile},
		{"https.proxyHost", "::1"}, {"https.proxyPort", "80"},
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Error(diff)
	}
	list, wantFindings := noproxy.ParseList(c.NoProxy, "").JVM()
	if diff := cmp.Diff([]proxyconfig.Var{{"http.nonProxyHosts", list}, {"socksNonProxyHosts", list}}, got[len(want):]); diff != "" {
		t.Error(diff)
	}
	if len(findings) == 0 || !slices.Equal(findings, wantFindings) {
		t.Errorf("got findings %v, want %v", findings, wantFindings)
	}
	c.HTTPSProxy = c.HTTPProxy
	if once := must2(c.JVMProperties())(t); len(once) != 6 {
		t.Errorf("got %v of one SOCKS proxy, want it once and the lists", once)
	}
}

func must2[T, U any](value T, _ U, err error) func(testing.TB) T { return must(value, err) }

func TestDockerConfigIsJSON(t *testing.T) {
	for _, u := range urls {
		var got struct {
			Proxies struct{ Default map[string]string }
		}
		if err := json.Unmarshal([]byte(must(config(u.url).DockerConfig())(t)), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"httpProxy": u.url, "httpsProxy": u.url, "noProxy": golden}
		if diff := cmp.Diff(want, got.Proxies.Default); diff != "" {
			t.Errorf("%s: %s", u.name, diff)
		}
	}
}
