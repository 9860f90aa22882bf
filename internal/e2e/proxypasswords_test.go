package e2e

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/proxyconfig"
)

// hostile is all that something on the way takes for itself.
const hostile = "+&'\"%@:\\$` #;!(){}|<>?/,=*~^[]"

// raw is what of it may be in a URL's password as it is.
const raw = "-._~!$&'*+,;=()"

// notASCII is the form that Java reads by its locale.
const notASCII = "not ASCII"

// A passwordForm is a password, how the URL has it, and the list beside it. If
// the list is "", it is usualList.
type passwordForm struct{ name, password, inURL, list string }

// usualList has much that a format may take for itself, and is longer than the
// 2048 bytes of systemd's first versions.
var usualList = "localhost, .svc;%n#" + strings.Repeat(",name.example.com", 200)

// longList is the form whose list docker refuses to read.
const longList = "a list of 100,000 bytes"

// listForms are lists that a format may take apart, beside a password of no
// special characters.
func listForms() []passwordForm {
	forms := []passwordForm{
		{name: "every host", list: "*"},
		{name: "addresses", list: "[2001:db8::1],2001:db8::/32,10.0.0.0/8,10.1.2.3,example.com:8080,.svc,*.test"},
		{name: "blanks", list: " , a ,b  "},
		{name: "signs", list: "#a,;b,!c,%d,{e},=f,(g),&h,|i,<j>,~k,?l,^m,%%n,+o"},
		{name: "a sign in front", list: ";a"},
		{name: "a list of docker's longest line", list: strings.Repeat("x", 64<<10-len("NO_PROXY=\n"))},
		{name: longList, list: strings.TrimSuffix(strings.Repeat("name.example.com,", 6000), ",")},
	}
	for i := range forms {
		forms[i].password, forms[i].inURL = "pass", "pass"
	}
	return forms
}

// passwordForms are a password of each character, at its ends and in the middle,
// percent-encoded and, where that is valid, as it is; and passwords of all of them.
func passwordForms() []passwordForm {
	forms := []passwordForm{
		{name: "all", password: "p" + hostile + "w", inURL: escape("p" + hostile + "w")},
		{name: "raw", password: raw + "%\"$", inURL: raw + "%25%22$"},
		{name: "what Kubernetes would expand", password: "$(HOME)$$", inURL: "%24%28HOME%29%24%24"},
		{name: "what a shell would expand", password: "${HOME}`id`$(id)", inURL: escape("${HOME}`id`$(id)")},
		{name: "what looks encoded", password: "%41%2541", inURL: escape("%41%2541")},
		{name: notASCII, password: "pässwörd", inURL: escape("pässwörd")},
	}
	for _, c := range "+&'\"%@:\\$` " {
		password := strings.ReplaceAll("xaxxbx", "x", string(c))
		forms = append(forms, passwordForm{name: fmt.Sprintf("%c", c), password: password, inURL: escape(password)})
		if once := string(c) + "a" + string(c) + "b" + string(c); strings.ContainsRune(raw, c) {
			forms = append(forms, passwordForm{name: fmt.Sprintf("%c raw", c), password: once, inURL: once})
		}
	}
	return forms
}

// escape percent-encodes all but letters and digits.
func escape(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// config has the password for the proxy at address, and the list.
func (f passwordForm) config(address string) proxyconfig.Config {
	at := "http://us%40er:" + f.inURL + "@" + address
	return proxyconfig.Config{HTTPProxy: at, HTTPSProxy: at, NoProxy: cmp.Or(f.list, usualList)}
}

// environment is what Env has, by name.
func environment(c proxyconfig.Config) map[string]string {
	vars := map[string]string{}
	for _, v := range c.Env() {
		vars[v.Name] = v.Value
	}
	return vars
}

// The forms have what they say: net/http's own parser is what they are held
// against.
func TestPasswordForms(t *testing.T) {
	for _, f := range append(passwordForms(), listForms()...) {
		c := f.config("proxy.test:3128")
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		r, err := http.NewRequest(http.MethodGet, c.HTTPProxy, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := r.URL.User.Password(); got != f.password {
			t.Errorf("%s: got %q, want %q", f.name, got, f.password)
		}
	}
}

// A passwordProxy asks for credentials, and keeps those that it gets.
type passwordProxy struct {
	*httptest.Server
	mu   sync.Mutex // guards the field below
	seen []string
}

func newPasswordProxy(t *testing.T) *passwordProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return servePasswordProxy(t, l)
}

func servePasswordProxy(t *testing.T, l net.Listener) *passwordProxy {
	p := &passwordProxy{}
	p.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		login := http.Header{"Authorization": r.Header["Proxy-Authorization"]}
		user, password, ok := (&http.Request{Header: login}).BasicAuth()
		if !ok {
			w.Header().Set("Proxy-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		p.mu.Lock()
		p.seen = append(p.seen, r.URL.Host+" "+user+" "+password)
		p.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
	})}}
	p.Start()
	t.Cleanup(p.Close)
	return p
}

func (p *passwordProxy) address() string { return strings.TrimPrefix(p.URL, "http://") }

// take returns which target it was asked for with which credentials, each once,
// since it was called before.
func (p *passwordProxy) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := slices.Compact(slices.Sorted(slices.Values(p.seen)))
	p.seen = nil
	return seen
}

// sharedDir is one that others than root may read, and short.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "proxyconfig")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
