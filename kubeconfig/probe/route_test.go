package probe_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig/connect"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// noAgent is an error as a tunnel's.
type noAgent struct{}

func (noAgent) Error() string     { return "tunnel: no agent is connected" }
func (noAgent) Unavailable() bool { return true }

// What the caller's own dialers say is explained, too.
func TestProbeDialers(t *testing.T) {
	const noName = "api.example.com"
	lookup := dialer.Direct{Dialer: &net.Dialer{Resolver: dnstest.Hosts{}.Resolver()}}
	refused := &dialer.HTTPConnect{Addr: script(t, nil, says("HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n"))}
	fails := func(err error) dialer.Dialer {
		return dialer.Func(func(context.Context, string, string) (net.Conn, error) { return nil, err })
	}
	for _, test := range []struct {
		name string
		opts connect.Options
		url  string // the proxy's
		want failure
	}{
		{"no such name", connect.Options{Forward: lookup}, "",
			failure{probe.PhaseDNS, "no address for the name " + noName, "If only a proxy knows the name, set proxy-url."}},
		{"no such name of a proxy", connect.Options{Forward: lookup}, "http://proxy.example.com:3128",
			failure{probe.PhaseDNS, "no address for the name proxy.example.com", "Correct the host in proxy-url"}},
		{"a broken resolver", connect.Options{Forward: fails(&dialer.Error{Op: "direct", Phase: dialer.PhaseDNS, Addr: "p:1", Err: &net.DNSError{Err: "server misbehaving", Name: "p"}})}, "",
			failure{probe.PhaseDNS, "DNS does not answer for the name p: server misbehaving", "DNS servers"}},
		{"the last of several", connect.Options{Dialer: &dialer.Failover{Dialers: []dialer.Dialer{&dialer.HTTPConnect{Addr: closedPort(t)}, refused}}}, "",
			failure{probe.PhaseConnect, "does not allow CONNECT", "Allow CONNECT"}},
		{"the hop that fails", connect.Options{Dialer: &dialer.SOCKS5{Addr: "10.0.0.1:1080", Forward: refused}}, "",
			failure{probe.PhaseConnect, "does not allow CONNECT to 10.0.0.1:1080", "Allow CONNECT to 10.0.0.1:1080"}},
		{"a tunnel without an agent", connect.Options{Dialer: fails(noAgent{})}, "",
			failure{probe.PhaseConnect, "no agent is connected", "Start the tunnel's agent"}},
		{"something else", connect.Options{Dialer: fails(errors.New("out of tape"))}, "",
			failure{probe.PhaseTCP, "out of tape", "Check"}},
		{"a mistake", connect.Options{Dialer: &dialer.Failover{}}, "",
			failure{probe.PhaseConfig, "", "Correct"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := newProbed(t, nil).config(t)
			config.Clusters["c1"].Server = "https://" + noName + ":6443"
			config.Clusters["c1"].ProxyURL = test.url
			checkFailure(t, kubetest.NewClient(t, config, &test.opts).Probe(probeContext(t)), test.want)
		})
	}
}

// Answers that are no failure, and what is said of them.
func TestProbeAnswers(t *testing.T) {
	type answers = map[string]http.HandlerFunc
	closing := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "ok")
	}
	for _, test := range []struct {
		name    string
		answers answers
		change  func(*clientcmdapi.AuthInfo)
		phase   probe.Phase
		want    string
	}{
		{"not allowed to look", answers{"/readyz": reply(403, "application/json", "{}")}, nil, probe.PhaseReady, "authenticated, but not allowed to read /readyz (403)"},
		{"kept closed", answers{"/readyz": reply(401, "application/json", "{}")}, nil, probe.PhaseReady, "authenticated, but /readyz is kept closed (401)"},
		{"no readyz", answers{"/readyz": reply(404, "text/plain", "")}, nil, probe.PhaseReady, "the API server has no /readyz (404)"},
		{"no SelfSubjectReview", answers{review: reply(404, "text/plain", "")}, nil, probe.PhaseAuth, "accepted"},
		{"not allowed to ask", answers{review: reply(403, "application/json", `{"kind":"Status","message":"User \"bob\" cannot"}`)}, nil, probe.PhaseAuth, "accepted"},
		{"a token", nil, func(u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{Token: "good"} }, probe.PhaseAuth, "as someone"},
		{"a token with a date", answers{review: reply(201, "application/json", "{}")},
			func(u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{Token: jwt(time.Unix(4e9, 0))} }, probe.PhaseConfig, "token until 2096-10-02"},
		{"nobody", nil, func(u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{} }, probe.PhaseAuth, "as system:anonymous: the kubeconfig has no credentials"},
		{"control characters", answers{review: reply(201, "application/json", `{"status":{"userInfo":{"username":"a\u001b[31m\nb"}}}`)}, nil, probe.PhaseAuth, "as a?[31m b"},
		{"closes after each answer", answers{review: closing, "/readyz": closing}, nil, probe.PhaseReady, "ok"},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := newProbed(t, test.answers)
			config := api.config(t)
			if test.change != nil {
				test.change(config.AuthInfos["c1-admin"])
			}
			r := probe.Run(probeContext(t), config)
			if !r.OK() {
				t.Fatal(r.Err())
			}
			for _, s := range r.Steps {
				if s.Phase == test.phase && s.Detail != test.want {
					t.Errorf("%s: got %q, want %q", s.Phase, s.Detail, test.want)
				}
			}
		})
	}
}

// What answers has to be an API server, whose path is that of the field server.
func TestProbeKnowsAPIServers(t *testing.T) {
	const path = "/k8s/c1"
	answer := func(status int, text string) http.HandlerFunc { return reply(status, "application/json", text) }
	forbids := func(path string) http.HandlerFunc {
		return answer(403, `{"kind":"Status","code":403,"message":"forbidden: User \"bob\" cannot get path \"`+path+`\""}`)
	}
	text := reply(404, "text/plain", "404 page not found\n")
	for _, test := range []struct {
		name    string
		answers map[string]http.HandlerFunc // below path; others have text
		want    bool
	}{
		{"another path of kube-apiserver", nil, false},
		{"the same, as JSON", map[string]http.HandlerFunc{"*": answer(404, `{"paths":["/apis"]}`)}, false},
		{"the same, as a Status", map[string]http.HandlerFunc{"*": answer(404, `{"kind":"Status","code":404,"message":"the server could not find the requested resource"}`)}, false},
		{"the same, for a user without rights", map[string]http.HandlerFunc{"*": forbids(path + "/version")}, false},
		{"a web server with any text", map[string]http.HandlerFunc{"*": reply(200, "text/plain", "ok")}, false},
		{"a Status for all", map[string]http.HandlerFunc{"*": answer(200, `{"kind":"Status","code":200}`)}, false},
		{"other JSON", map[string]http.HandlerFunc{"*": answer(200, `{"kind":"books"}`)}, false},
		{"a login page", map[string]http.HandlerFunc{"*": reply(401, "text/html", "<html>")}, false},
		{"SelfSubjectReview", map[string]http.HandlerFunc{review: answer(201, `{"kind":"SelfSubjectReview"}`)}, true},
		{"no right to it", map[string]http.HandlerFunc{review: answer(403, `{"kind":"Status","message":"User \"bob\" cannot create resource"}`)}, true},
		{"an older one", map[string]http.HandlerFunc{review: answer(404, `{"kind":"Status"}`), "/version": answer(200, `{"gitVersion":"v1.20.0"}`)}, true},
		{"an older one, and no right", map[string]http.HandlerFunc{"/version": forbids("/version")}, true},
		{"a web page in place of the review", map[string]http.HandlerFunc{review: reply(404, "text/html", ""), "/version": answer(200, `{"gitVersion":"v1.36.3"}`)}, true},
		{"a proxy for resources", map[string]http.HandlerFunc{"/api": answer(200, `{"kind":"APIVersions"}`)}, true},
		{"a proxy for groups", map[string]http.HandlerFunc{"/apis": answer(200, `{"kind":"APIGroupList"}`)}, true},
	} {
		all := map[string]http.HandlerFunc{"*": text}
		for below, answer := range test.answers {
			if below != "*" {
				below = path + below
			}
			all[below] = answer
		}
		config := newProbed(t, all).config(t)
		config.Clusters["c1"].Server += path
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, plain), func(t *testing.T) {
				r := probe.Options{Plain: plain}.Run(probeContext(t), config)
				if test.want && !r.OK() {
					t.Error(r.Err())
				}
				if !test.want {
					checkFailure(t, r, failure{probe.PhaseAuth, "no API server of Kubernetes answers at " + config.Clusters["c1"].Server, "Correct server in the kubeconfig, path included"})
				}
			})
		}
	}
}

// An API server that speaks TLS answers 400 to a request without, a proxy for CONNECT 405.
func TestProbeWithoutTLS(t *testing.T) {
	for _, proxy := range []string{"", "http://" + script(t, nil, (&proxytest.HTTP{}).Handle)} {
		config := newProbed(t, nil).config(t)
		c := config.Clusters["c1"]
		c.Server, c.ProxyURL = strings.Replace(c.Server, "https", "http", 1), proxy
		for _, plain := range []bool{false, true} {
			checkFailure(t, probe.Options{Plain: plain}.Run(probeContext(t), config), failure{probe.PhaseAuth,
				"no API server of Kubernetes answers at " + c.Server + " without TLS", "Write https:// in place of http:// in the kubeconfig's server"})
		}
	}
}

// A server without TLS, below a path, and by HTTP/1.1 with an end after each
// answer.
func TestProbePlainHTTP(t *testing.T) {
	paths := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths <- r.URL.Path
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, `{"kind":"SelfSubjectReview"}`)
	}))
	defer s.Close()
	config := newProbed(t, nil).config(t)
	config.Clusters["c1"].Server, config.Clusters["c1"].CertificateAuthorityData = s.URL+"/k8s/c1", nil
	*config.AuthInfos["c1-admin"] = clientcmdapi.AuthInfo{Token: "x"}
	r := probe.Run(probeContext(t), config)
	if !r.OK() || r.Server != s.URL+"/k8s/c1" {
		t.Fatalf("got %v of %q", r.Err(), r.Server)
	}
	for _, want := range []string{"/k8s/c1/apis/authentication.k8s.io/v1/selfsubjectreviews", "/k8s/c1/readyz", "/k8s/c1/version"} {
		if got := <-paths; got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
	}
}

// The alerts of what wants client certificates itself.
func TestProbeAlerts(t *testing.T) {
	for _, test := range []struct {
		name   string
		config func(*tls.Config)
		user   bool
		want   failure
	}{
		{"required", func(c *tls.Config) { c.ClientAuth = tls.RequireAndVerifyClientCert }, false,
			failure{probe.PhaseAuth, "wants a client certificate, and there is none", "Put a client certificate"}},
		{"unknown CA", func(c *tls.Config) { c.ClientAuth = tls.RequireAndVerifyClientCert }, true,
			failure{probe.PhaseAuth, "does not accept the client certificate", "Get a new kubeconfig"}},
		{"expired by its clock", func(c *tls.Config) {
			c.ClientAuth = tls.RequireAndVerifyClientCert
			c.Time = func() time.Time { return time.Now().AddDate(2, 0, 0) }
		}, true, failure{probe.PhaseAuth, "revoked or expired", "set the clocks right"}},
		{"no such name", func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, errors.New("no") }
		}, true, failure{probe.PhaseTLS, "the API server ended the TLS handshake", "Read the log"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := newProbed(t, nil)
			config := api.config(t)
			server := &tls.Config{Certificates: []tls.Certificate{api.ca.Server("api.test", "127.0.0.1")}, ClientCAs: pki.NewCAWith(nil, nil).Pool()}
			test.config(server)
			if server.Time != nil {
				server.ClientCAs = api.ca.Pool()
			}
			config.Clusters["c1"].Server = "https://" + script(t, server, says("HTTP/1.1 200 OK\r\n\r\n"))
			if !test.user {
				*config.AuthInfos["c1-admin"] = clientcmdapi.AuthInfo{Token: "x"}
			}
			checkFailure(t, probe.Run(probeContext(t), config), test.want)
		})
	}
}

// A Report is JSON, its times nanoseconds, and holds no error.
func TestReportJSON(t *testing.T) {
	r := probe.Report{Server: "https://a", Route: "direct", Steps: []probe.Step{
		{Phase: probe.PhaseTCP, Took: time.Millisecond, Detail: "a:443"},
		{Phase: probe.PhaseTLS, Took: 2, Cause: "c", Advice: "d", Err: errors.New("e")},
	}}
	text, err := json.Marshal(r)
	want := `{"server":"https://a","route":"direct","steps":[{"phase":"tcp","took":1000000,"detail":"a:443"},{"phase":"tls","took":2,"cause":"c","advice":"d"}]}`
	if err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
	if got := r.Err().Error(); got != "probe: tls: c" {
		t.Errorf("got %q", got)
	}
	if (probe.Report{}).OK() {
		t.Error("a Report without steps is OK")
	}
}

// A secret is nowhere in a Report, wherever the kubeconfig has it and whatever
// fails.
func TestNoSecretInReport(t *testing.T) {
	api := newProbed(t, nil)
	login := script(t, nil, (&proxytest.HTTP{Username: "u", Password: "p"}).Handle)
	socks := script(t, nil, (&proxytest.SOCKS5{Username: "u", Password: "p"}).Handle)
	user := api.config(t).AuthInfos["c1-admin"]
	keys := [][]byte{user.ClientKeyData}
	plugin := clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: "echo", Args: []string{kubetest.Canary}, Env: []clientcmdapi.ExecEnvVar{{Name: "SECRET", Value: kubetest.Canary}},
		APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	urls := append(kubetest.CanaryURLs(), "http://user:"+kubetest.EncodedCanary+"@"+login, "socks5://user:"+kubetest.EncodedCanary+"@"+socks, "https://user:"+kubetest.EncodedCanary+"@"+login, "")
	for _, u := range urls {
		for _, user := range []clientcmdapi.AuthInfo{*user, {Token: kubetest.Canary}, {Token: jwt(time.Unix(1, 0)) + kubetest.Canary}, {Username: "u", Password: kubetest.Canary}, plugin} {
			config := api.config(t)
			config.Clusters["c1"].ProxyURL = u
			*config.AuthInfos["c1-admin"] = user
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			r := probeNowhere(ctx, t, config)
			cancel()
			text, err := json.Marshal(r)
			if err != nil || kubetest.Leaks(string(text), keys...) != "" {
				t.Errorf("%s: %v, JSON holds %q: %s", strings.ReplaceAll(u, kubetest.Canary, "..."), err, kubetest.Leaks(string(text), keys...), text)
			}
			kubetest.CheckLeaks(t, "Report", r, keys...)
			for _, e := range kubetest.ErrorTree(r.Err()) {
				kubetest.CheckLeaks(t, "Report.Err", e, keys...)
			}
		}
	}
}

// A server with user info can't be used, and is not shown.
func TestNoSecretInServer(t *testing.T) {
	config := newProbed(t, nil).config(t)
	config.Clusters["c1"].Server = "https://u:" + kubetest.Canary + "@api.test"
	r := probe.Run(probeContext(t), config)
	checkFailure(t, r, failure{probe.PhaseConfig, "user info", "Correct"})
	kubetest.CheckLeaks(t, "Report", r)
}

// probeNowhere probes without a lookup that leaves this machine.
func probeNowhere(ctx context.Context, t *testing.T, config *clientcmdapi.Config) probe.Report {
	t.Helper()
	loopback := dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(address, "127.0.0.1:") {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("elsewhere")}
		}
		return dialer.Direct{}.DialContext(ctx, network, address)
	})
	c, err := connect.New(config, &connect.Options{Forward: loopback})
	if err != nil {
		return probe.Run(ctx, config) // which fails as well
	}
	defer c.Close()
	return c.Probe(ctx)
}
