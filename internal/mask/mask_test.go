package mask_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/mask"
)

func TestText(t *testing.T) {
	for _, test := range []struct {
		name, text, secret string
		cut                bool
		want               string
	}{
		{"plain", "user s3cret sent", "s3cret", false, "user *** sent"},
		{"twice", "s3crets3cret", "s3cret", false, "******"},
		{"percent", "http://u:s3%63ret@p", "s3cret", false, "http://u:***@p"},
		{"percent, lower case", "a%2fb%3ac", "a/b:c", false, "***"},
		{"query", "a+b", "a b", false, "***"},
		{"HTML", "a&amp;b&lt;&#34;&#x27;", `a&b<"'`, false, "***"},
		{"JSON", `a\u0026\"b`, `a&"b`, false, "***"},
		{"a % of its own", "%41%2541", "%41", false, "******"},
		{"cut", "the password s3cr", "s3cret", true, "the password ***"},
		{"cut within an escape", "the password s3c%7", "s3cret", true, "the password ***"},
		{"not cut", "the password s3cr", "s3cret", false, "the password s3cr"},
		{"a space", "denied for banana", " ", false, "denied for banana"},
		{"one letter", "proxy.test:3128: a bad answer to u:a@b, %61, \"a\"", "a", false, "proxy.test:3128: *** bad answer to u:***@b, ***, \"***\""},
		{"one letter within words", "éa %61b banana a1", "a", false, "éa %61b banana a1"},
		{"three letters", "user abc: abcd", "abc", false, "user ***: abcd"},
		{"four letters", "xabcdx", "abcd", false, "x***x"},
		{"none", "nothing", "", true, "nothing"},
	} {
		if got := mask.Text(test.text, test.cut, []string{test.secret}); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestHeader(t *testing.T) {
	secrets := mask.Header(http.Header{
		"Proxy-Authorization": {"Basic dTpwYXNzOndvcmQ="}, // u:pass:word
		"Authorization":       {"Bearer t0ken"},
		"X-Key":               {"0123456789"},
		"X-Short":             {"on"},
	})
	for _, text := range []string{"pass:word", "dTpwYXNzOndvcmQ=", "dTpwYXNzOndvcmQ", "cGFzczp3b3Jk", "t0ken", "0123456789"} {
		if got := mask.Text(text, false, secrets); strings.Trim(got, "*=") != "" {
			t.Errorf("%q: got %q, want it masked", text, got)
		}
	}
	if got := mask.Text("turn on", false, secrets); got != "turn on" {
		t.Errorf("got %q, want a short value left as it is", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a%41&amp;b", "A&b")
	f.Fuzz(func(t *testing.T, text, secret string) {
		got := mask.Text(text, false, []string{secret})
		if len(secret) > 3 && !strings.ContainsAny(secret, "*") && strings.Contains(got, secret) {
			t.Errorf("%q without %q is %q", text, secret, got)
		}
	})
}

func TestAddress(t *testing.T) {
	for address, want := range map[string]string{
		"tunnel.example.com:8443":         "tunnel.example.com:8443",
		"wss://u:s3cr3t@h:1/p":            "wss://u:xxxxx@h:1/p",
		"wss://h/p?token=s3cr3t":          "wss://h/p?xxxxx",
		"wss://u:s3%zz@h":                 "(not a URL)",
		"u:s3cr3t@h:1":                    "xxxxx@h:1",
		"127.0.0.1:0=a/u:s3cr3t@canary:1": "xxxxx@canary:1",
		"a\x1b[2Jb:1":                     "a?[2Jb:1",
	} {
		if got := mask.Address(address); got != want {
			t.Errorf("%q: got %q, want %q", address, got, want)
		}
	}
}
