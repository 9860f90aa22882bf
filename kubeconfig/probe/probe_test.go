package probe_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// review is where probes ask who they are.
const review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// probed is a cluster that is probed: an API server at an address of loopback.
type probed struct {
	*httptest.Server
	ca *pki.CA
	// answers are by path, * for any; a path that has none is served as by kube-apiserver.
	answers map[string]http.HandlerFunc
}

func newProbed(t *testing.T, answers map[string]http.HandlerFunc) *probed {
	t.Helper()
	return startProbed(t, &probed{ca: pki.NewCAWith(nil, nil), answers: answers}, "api.test")
}

func startProbed(t *testing.T, s *probed, name string) *probed {
	t.Helper()
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{s.ca.Server(name, "127.0.0.1")},
		ClientAuth:   tls.RequestClientCert,
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *probed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, path := range []string{r.URL.Path, "*"} {
		if answer := s.answers[path]; answer != nil {
			answer(w, r)
			return
		}
	}
	name, bad := s.whoIs(r)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case bad:
		status(w, http.StatusUnauthorized, "Unauthorized")
	case r.URL.Path == "/version":
		fmt.Fprint(w, `{"gitVersion":"v1.36.3"}`)
	case r.URL.Path == "/readyz":
		fmt.Fprint(w, "[+]ping ok\nreadyz check passed\n")
	case r.Method == http.MethodPost && name == "system:anonymous":
		status(w, http.StatusForbidden, `selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" cannot create it`)
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":%q}}}`, name)
	default:
		status(w, http.StatusNotFound, "not found")
	}
}

func (s *probed) whoIs(r *http.Request) (name string, bad bool) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return "someone", token != "good"
	}
	if len(r.TLS.PeerCertificates) == 0 {
		return "system:anonymous", false
	}
	cert := r.TLS.PeerCertificates[0]
	_, err := cert.Verify(x509.VerifyOptions{Roots: s.ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return cert.Subject.CommonName, err != nil
}

func status(w http.ResponseWriter, code int, message string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","code":%d,"message":%q}`, code, message)
}

func reply(code int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// config is a good kubeconfig for s.
func (s *probed) config(t *testing.T) *clientcmdapi.Config {
	t.Helper()
	spec := kubetest.Spec(s.ca)
	spec.Endpoint = endpoint(t, s.Listener.Addr().String())
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func endpoint(t *testing.T, addr string) kubeconfig.Endpoint {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig.Endpoint{Host: host, Port: int32(n)}
}

func probeContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// phasesOf are a report's.
func phasesOf(r probe.Report) []probe.Phase {
	var phases []probe.Phase
	for _, s := range r.Steps {
		phases = append(phases, s.Phase)
	}
	return phases
}

// failure is how a probe is expected to fail: the cause and the advice hold
// these words.
type failure struct {
	phase         probe.Phase
	cause, advice string
}

func checkFailure(t *testing.T, r probe.Report, want failure) {
	t.Helper()
	got := r.Failed()
	if got == nil {
		t.Fatalf("got %+v, want a failure in %s", r, want.phase)
	}
	if got.Phase != want.phase || !strings.Contains(got.Cause, want.cause) || !strings.Contains(got.Advice, want.advice) {
		t.Errorf("got %s: %s\n\t%s\n(%v)\nwant %s: %s\n\t%s", got.Phase, got.Cause, got.Advice, got.Err, want.phase, want.cause, want.advice)
	}
	if got.Took < 0 {
		t.Errorf("it took %v", got.Took)
	}
	order := []probe.Phase{
		probe.PhaseConfig, probe.PhaseDNS, probe.PhaseTCP, probe.PhaseProxyTLS, probe.PhaseProxyAuth,
		probe.PhaseConnect, probe.PhaseTLS, probe.PhaseAuth, probe.PhaseReady,
	}
	for i, s := range r.Steps[:len(r.Steps)-1] {
		if s.Err != nil || s.Cause != "" || s.Advice != "" {
			t.Errorf("a step before the last failed: %+v", s)
		}
		if slices.Index(order, s.Phase) >= slices.Index(order, r.Steps[i+1].Phase) {
			t.Errorf("the phases are %v", phasesOf(r))
		}
	}
	var pe *probe.Error
	if err := r.Err(); !errors.As(err, &pe) || pe.Phase != want.phase || !errors.Is(err, got.Err) || r.OK() {
		t.Errorf("Err: got %#v", err)
	}
}

func TestProbeGood(t *testing.T) {
	api := newProbed(t, nil)
	addr := api.Listener.Addr().String()
	proxyCA := pki.NewCAWith(nil, nil)
	user := url.UserPassword("u", "p@ss:+%")
	serve := func(handle proxyFunc, config *tls.Config) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if config != nil {
			l = tls.NewListener(l, config)
		}
		s := proxytest.Serve(l, handle)
		t.Cleanup(s.Close)
		return s.Addr()
	}
	plain := serve((&proxytest.HTTP{}).Handle, nil)
	login := serve((&proxytest.HTTP{Username: "u", Password: "p@ss:+%"}).Handle, nil)
	secure := serve((&proxytest.HTTP{}).Handle, &tls.Config{Certificates: []tls.Certificate{proxyCA.Server("proxy.test", "127.0.0.1")}})
	socks := serve((&proxytest.SOCKS5{Username: "u", Password: "p@ss:+%"}).Handle, nil)
	rest := []probe.Phase{probe.PhaseTLS, probe.PhaseAuth, probe.PhaseReady}
	for _, test := range []struct {
		name  string
		proxy url.URL
		route string
		want  []probe.Phase
	}{
		{"direct", url.URL{}, "direct", nil},
		{"http", url.URL{Scheme: "http", Host: plain}, "http://" + plain, []probe.Phase{probe.PhaseConnect}},
		{"http with a password", url.URL{Scheme: "http", Host: login, User: user}, "http://" + login, []probe.Phase{probe.PhaseConnect}},
		{"https", url.URL{Scheme: "https", Host: secure}, "https://" + secure, []probe.Phase{probe.PhaseProxyTLS, probe.PhaseConnect}},
		{"socks5", url.URL{Scheme: "socks5", Host: socks, User: user}, "socks5://" + socks, []probe.Phase{probe.PhaseProxyAuth, probe.PhaseConnect}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := api.config(t)
			config.Clusters["c1"].ProxyURL = test.proxy.String()
			c := kubetest.NewClient(t, config, &connect.Options{ProxyTLS: &tls.Config{RootCAs: proxyCA.Pool()}})
			r := c.Probe(probeContext(t))
			if !r.OK() || r.Err() != nil || r.Failed() != nil {
				t.Fatalf("got %v", r.Err())
			}
			want := append([]probe.Phase{probe.PhaseConfig, probe.PhaseTCP}, test.want...)
			if diff := cmp.Diff(append(want, rest...), phasesOf(r)); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
			if r.Server != "https://"+addr || r.Route != test.route || r.Version != "v1.36.3" {
				t.Errorf("got %q by %q, version %q", r.Server, r.Route, r.Version)
			}
			for _, s := range r.Steps {
				if s.Took <= 0 || s.Detail == "" && s.Phase != probe.PhaseProxyAuth {
					t.Errorf("got %+v", s)
				}
			}
			if got := r.Steps[len(r.Steps)-2].Detail; got != "as kubernetes-admin" {
				t.Errorf("auth: got %q", got)
			}
		})
	}
}
