package doctor

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "KUBECONFIG", "DOCTOR_KUBECONFIG"} {
		os.Unsetenv(name)
	}
	goleak.VerifyTestMain(m)
}

const secret = "Canary7f3aSecret"

// cluster is an API server with a kubeconfig for it, which a test may change.
type cluster struct {
	addr   string
	config *clientcmdapi.Config
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	ca := pki.NewCA("kubernetes")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch token := r.Header.Get("Authorization"); {
		case token == "Bearer early" && r.URL.Path == "/readyz":
			w.WriteHeader(http.StatusInternalServerError)
		case token != "Bearer "+secret && token != "Bearer early":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"admin"}}}`)
		case r.URL.Path == "/version":
			io.WriteString(w, `{"gitVersion":"v1.36.3"}`)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := &cluster{addr: s.Listener.Addr().String(), config: clientcmdapi.NewConfig()}
	c.config.Clusters["prod"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: ca.CertPEM()}
	c.config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: secret}
	c.config.Contexts["admin@prod"] = &clientcmdapi.Context{Cluster: "prod", AuthInfo: "admin"}
	c.config.CurrentContext = "admin@prod"
	return c
}

func (c *cluster) file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*c.config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func doctor(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	_, err := command.Execute(t.Context(), Command(), args, strings.NewReader(""), &out, io.Discard)
	if strings.Contains(out.String(), secret) {
		t.Errorf("the output holds a secret:\n%s", out.String())
	}
	return out.String(), err
}

// steady replaces what differs from run to run.
func (c *cluster) steady(text string) string {
	text = strings.ReplaceAll(text, c.addr, "API")
	return regexp.MustCompile(` +[0-9.]+ m?s  `).ReplaceAllString(text, " T  ")
}

func TestGood(t *testing.T) {
	c := newCluster(t)
	out, err := doctor(t, "--kubeconfig", c.file(t))
	if err != nil {
		t.Fatal(err)
	}
	want := `context  admin@prod
server   https://API
route    direct

  ok     config T  token
  ok     tcp T  API
  ok     tls T  TLS 1.3, http/1.1, certificate "127.0.0.1" of "kubernetes" until DAY
  ok     auth T  as admin
  ok     readyz T  ok

good     the API server is reached: v1.36.3
`
	got := regexp.MustCompile(`\d{4}-\d\d-\d\d`).ReplaceAllString(c.steady(out), "DAY")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func serveProxy(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := proxytest.Serve(l, (&proxytest.HTTP{Username: "u", Password: "p"}).Handle)
	t.Cleanup(s.Close)
	return s.Addr()
}

func TestFails(t *testing.T) {
	c := newCluster(t)
	proxy := serveProxy(t)
	c.config.Clusters["prod"].ProxyURL = (&url.URL{Scheme: "http", User: url.UserPassword("u", secret), Host: proxy}).String()
	path := c.file(t)
	out, err := doctor(t, "--kubeconfig", path)
	if !errors.Is(err, cli.ErrFailed) {
		t.Errorf("got %v, want cli.ErrFailed", err)
	}
	want := `context  admin@prod
server   https://API
route    http://PROXY

  ok     config T  token
  ok     tcp T  PROXY
  FAIL   proxy auth T  the proxy answered 407: it refused the user name and password

cause    proxy auth: the proxy answered 407: it refused the user name and password
remedy   Correct user name and password in the kubeconfig's proxy-url (percent-encode : / ? # @ % and spaces); with the Kubeconfig Provider, in the Secret that the annotation route-secret names.
`
	if diff := cmp.Diff(want, strings.ReplaceAll(c.steady(out), proxy, "PROXY")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	text, err := doctor(t, "--kubeconfig", path, "--json")
	var d struct {
		Context string
		OK      *bool
		Status  int
		Notes   []string
		Report  struct {
			Server, Route string
			Steps         []struct {
				Phase, Cause, Advice string
				Took                 int64
			}
		}
	}
	if jsonErr := json.Unmarshal([]byte(text), &d); jsonErr != nil || !errors.Is(err, cli.ErrFailed) {
		t.Fatalf("got %v, %v of\n%s", err, jsonErr, text)
	}
	last := d.Report.Steps[len(d.Report.Steps)-1]
	if d.Status != 4 || d.Context != "admin@prod" || d.OK == nil || *d.OK || d.Notes == nil || d.Report.Route != "http://"+proxy || last.Phase != "proxy auth" || last.Cause == "" || last.Advice == "" || last.Took <= 0 {
		t.Errorf("got %s", text)
	}
}

// Each cause has its status.
func TestStatus(t *testing.T) {
	serve := func(answer string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				io.WriteString(conn, "HTTP/1.1 "+answer+"\r\nContent-Length: 0\r\n\r\n")
			}
		})
		t.Cleanup(s.Close)
		return "http://" + s.Addr()
	}
	for _, test := range []struct {
		name   string
		change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		want   int
	}{
		{"kubeconfig", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "ftp://x" }, 1},
		{"network", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://127.0.0.1:1" }, 3},
		{"proxy's rules", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = serve("403 No") }, 3},
		{"login", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = serve("407 No") }, 4},
		{"ticket", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = serve("407 No\r\nProxy-Status: causeway; error=http_request_denied")
		}, 4},
		{"no agent", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = serve("503 No\r\nProxy-Status: causeway; error=destination_unavailable")
		}, 5},
		{"the agent's policy", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = serve("403 No\r\nProxy-Status: causeway; error=destination_ip_prohibited")
		}, 5},
		{"TLS", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = pki.NewCA("x").CertPEM()
		}, 6},
		{"credentials", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = "wrong" }, 7},
		{"not ready", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = "early" }, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t)
			test.change(c.config.Clusters["prod"], c.config.AuthInfos["admin"])
			out, err := doctor(t, "--kubeconfig", c.file(t))
			var got cli.Status
			if !errors.As(err, &got) || int(got) != test.want || !errors.Is(err, cli.ErrFailed) {
				t.Errorf("got %v, want status %d, of\n%s", err, test.want, out)
			}
		})
	}
}

// The CA of an https proxy is in no kubeconfig.
func TestProxyCA(t *testing.T) {
	ca, c := pki.NewCA("office"), newCluster(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	s := proxytest.Serve(l, (&proxytest.HTTP{}).Handle)
	t.Cleanup(s.Close)
	c.config.Clusters["prod"].ProxyURL = "https://" + s.Addr()
	out, err := doctor(t, "--kubeconfig", c.file(t))
	if want := "Add the proxy's CA to this machine's roots"; err == nil || !strings.Contains(out, want) || !strings.Contains(out, `issued by "office"`) {
		t.Errorf("got %v of\n%s\nwant %q", err, out, want)
	}
}

func TestKubeconfigs(t *testing.T) {
	c := newCluster(t)
	path := c.file(t)
	other := clientcmdapi.NewConfig()
	other.CurrentContext = "admin@prod"
	first := filepath.Join(t.TempDir(), "first")
	if err := clientcmd.WriteToFile(*other, first); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("clusters: ["+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		env  string
		args []string
		want string
	}{
		{"the variable's list", first + string(os.PathListSeparator) + path, nil, "good "},
		{"a context", path, []string{"--context", "admin@prod"}, "good "},
		{"no such context", path, []string{"--context", "x"}, `there is no context "x"`},
		{"a context of two lines", path, []string{"--context", "a\n  ok     b"}, `context  "a\n  ok     b"` + "\n"},
		{"no file", path, []string{"--kubeconfig", "/nonexistent/config"}, "Name a file by --kubeconfig"},
		{"none", "", nil, "there is no kubeconfig"},
		{"no YAML", path, []string{"--kubeconfig", broken}, "Mend the file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.env)
			if test.env == "" {
				t.Setenv("KUBECONFIG", "/nonexistent/config")
			}
			out, err := doctor(t, test.args...)
			if !strings.Contains(out, test.want) || (err == nil) != (test.want == "good ") {
				t.Errorf("got %v of\n%s\nwant %q", err, out, test.want)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) })
	t.Cleanup(s.Close)
	c := newCluster(t)
	c.config.Clusters["prod"].ProxyURL = "http://" + s.Addr()
	out, err := doctor(t, "--kubeconfig", c.file(t), "--timeout", "1s")
	if !errors.Is(err, cli.ErrFailed) || !strings.Contains(out, "FAIL   connect") {
		t.Errorf("got %v of\n%s", err, out)
	}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"x"}, `unexpected argument "x"`},
		{[]string{"--timeout", "0s"}, "--timeout must be more than zero, such as 15s"},
		{[]string{"--capi-cluster", "prod"}, `--capi-cluster "prod" is not NAMESPACE/NAME`},
		{[]string{"--verbose"}, "unknown flag --verbose"},
	} {
		out, err := doctor(t, test.args...)
		var mistake cli.UsageError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), test.want) || out != "" {
			t.Errorf("%v: got %v and %q, want %q", test.args, err, out, test.want)
		}
	}
}

func TestNotes(t *testing.T) {
	const direct = "HTTPS_PROXY is set, and kubectl goes to api.test:6443 through http://proxy:3128"
	certificate := clientcmdapi.AuthInfo{ClientCertificateData: []byte("x")}
	for _, test := range []struct {
		name    string
		cluster clientcmdapi.Cluster
		user    clientcmdapi.AuthInfo
		env     map[string]string
		want    []string // that the notes hold
	}{
		{"none", clientcmdapi.Cluster{}, certificate, map[string]string{"NO_PROXY": "x"}, nil},
		{"followed", clientcmdapi.Cluster{}, certificate, map[string]string{"HTTPS_PROXY": "http://u:" + secret + "@proxy:3128", "NO_PROXY": "10.0.0.0/8"}, []string{direct}},
		{"without a scheme", clientcmdapi.Cluster{}, certificate, map[string]string{"HTTPS_PROXY": "u:" + secret + "@proxy:3128"}, []string{direct}},
		{"no URL", clientcmdapi.Cluster{}, certificate, map[string]string{"HTTPS_PROXY": "http://" + secret + " @"}, []string{"a proxy that is no URL"}},
		{"lower case", clientcmdapi.Cluster{}, certificate, map[string]string{"https_proxy": "proxy:3128"}, []string{"https_proxy is set"}},
		{"not followed", clientcmdapi.Cluster{}, certificate, map[string]string{"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "a, .test"}, []string{`NO_PROXY keeps kubectl from using it for api.test:6443 (".test": a name below it)`}},
		{"proxy-url wins", clientcmdapi.Cluster{ProxyURL: "http://p"}, certificate, map[string]string{"HTTPS_PROXY": "proxy:3128"}, nil},
		{"https proxy", clientcmdapi.Cluster{ProxyURL: "https://p"}, certificate, nil, []string{"show it your client certificate"}},
		{"https proxy with a token", clientcmdapi.Cluster{ProxyURL: "https://p"}, clientcmdapi.AuthInfo{Token: secret}, nil, []string{"verify this https proxy by the kubeconfig's certificate-authority-data."}},
		{"socks5h", clientcmdapi.Cluster{ProxyURL: "socks5h://p"}, certificate, nil, []string{"kubectl refuses socks5h"}},
		{"insecure", clientcmdapi.Cluster{InsecureSkipTLSVerify: true}, certificate, nil, []string{"insecure-skip-tls-verify"}},
		{"plain", clientcmdapi.Cluster{Server: "http://api.test:8080"}, certificate, nil, []string{"without TLS"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := clientcmdapi.NewConfig()
			if test.cluster.Server == "" {
				test.cluster.Server = "https://api.test:6443"
			}
			config.Clusters["c"], config.AuthInfos["u"] = &test.cluster, &test.user
			config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
			config.CurrentContext = "x"
			got := environmentNotes(config, probe.Report{Server: test.cluster.Server}, func(name string) string { return test.env[name] })
			if len(got) != len(test.want) || len(got) > 0 && !strings.Contains(got[0], test.want[0]) || strings.Contains(fmt.Sprint(got), secret) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A person's own kubeconfig may log in by client-go's plugins.
func TestAuthProvider(t *testing.T) {
	token := func(expires string) string {
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(`{"exp":`+expires+`}`)) + ".x"
	}
	for expires, want := range map[string]string{
		"9999999999": "the API server does not accept what the plugin oidc gives (401)",
		"1":          "the auth provider oidc gives no credentials: No valid id-token, and cannot refresh without refresh-token",
	} {
		c := newCluster(t)
		c.config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: map[string]string{
			"idp-issuer-url": "https://issuer.test/" + expires, "client-id": "kubectl", "id-token": token(expires),
		}}}
		out, err := doctor(t, "--kubeconfig", c.file(t))
		if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, want) || !errors.Is(err, cli.Status(7)) {
			t.Errorf("got %v\n%s\nwant %q", err, out, want)
		}
	}
}
