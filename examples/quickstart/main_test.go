package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/test/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStandIns(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // must not matter
	file := filepath.Join(t.TempDir(), "kubeconfig")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-o", file}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	const ms = `\d+\.\dms +`
	for _, want := range []string{
		`is a stand-in`,
		`HTTP proxy +- +` + ms + `- +` + ms + ms + ms + `v1\.36\.0-stand-in, readyz ok, 4 namespaces, watch saw "default"\n`,
		`HTTPS proxy +- +` + ms + ms + ms + ms + ms + `v1\.36\.0-stand-in, readyz ok, 4 namespaces, watch saw "default"\n`,
		`SOCKS5 proxy +- +` + ms + `- +` + ms + ms + ms + `v1\.36\.0-stand-in, readyz ok, 4 namespaces, watch saw "default"\n`,
		`TUNNEL +- +` + ms + `- +` + ms + ms + ms + `v1\.36\.0-stand-in, readyz ok, 4 namespaces, watch saw "default"\n`,
		`no proxy +dialer: 192\.0\.2\.10:6443: tcp: `,
		`HTTP proxy, wrong password .* 407 `,
		`HTTPS proxy, wrong password .* 407 `,
		`SOCKS5 proxy, wrong password .* refused the user name and password`,
		`TUNNEL, wrong ticket .* 407 .*the credentials are missing or wrong`,
		`Try next:`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("want a match of %s", want)
		}
	}
	if strings.Contains(out.String(), "w/rd") || strings.Contains(out.String(), "w%2Frd") {
		t.Error("the output shows the password")
	}
	if t.Failed() {
		t.Logf("got\n%s", &out)
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil || config.Clusters["quickstart"].Server != "https://192.0.2.10:6443" {
		t.Errorf("kubeconfig: %v, %v", config, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: got mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestBadFlags(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
	good := write("good", head+"clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: ''}}]\n")
	plain := write("plain", head+"clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"-nonsense"}, "nonsense"},
		{"argument", []string{"x"}, `unexpected argument "x"`},
		{"proxy alone", []string{"-proxy", "http://p"}, "need -kubeconfig"},
		{"no file", []string{"-kubeconfig", filepath.Join(dir, "none")}, "-kubeconfig"},
		{"two users", []string{"-kubeconfig", write("two", strings.Replace(head, "users: [", "users: [{name: u, user: {password: canary}}, ", 1))}, `has two users of the name "u"`},
		{"no context", []string{"-kubeconfig", write("empty", "")}, "is empty"},
		{"plain http", []string{"-kubeconfig", plain}, "not an https URL"},
		{"no CA", []string{"-kubeconfig", good}, "CA"},
		{"bad proxy", []string{"-kubeconfig", good, "-proxy", "ftp://u:canary@p"}, `-proxy: dialer: config: the scheme "ftp"`},
		{"bad proxy CA", []string{"-kubeconfig", good, "-proxy", "https://p", "-proxy-ca", plain}, "-proxy-ca"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := run(context.Background(), tt.args, new(bytes.Buffer))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %v, want it to contain %q", err, tt.want)
			}
		})
	}
}

// The kubeconfig's own proxy is taken, unless -proxy names another.
func TestOwnProxy(t *testing.T) {
	asked := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer proxy.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	ca := base64.StdEncoding.EncodeToString(pki.NewCA("ca").CertPEM())
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {token: t}}]\n" +
		"clusters: [{name: k, cluster: {server: 'https://api.test:6443', certificate-authority-data: " + ca + ", proxy-url: '" + strings.Replace(proxy.URL, "://", "://u:p@", 1) + "'}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"-kubeconfig", file}, &out)
	select {
	case got := <-asked:
		if got != "CONNECT api.test:6443" || !strings.Contains(out.String(), proxy.URL) {
			t.Errorf("the proxy was asked for %s; got %v and\n%s", got, err, &out)
		}
	default:
		t.Errorf("the proxy was not asked; got %v and\n%s", err, &out)
	}
}
