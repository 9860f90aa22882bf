package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/transport"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/mask"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

const (
	maxAnswer   = 64 << 10  // bytes of an answer's body, and of its header
	maxReceived = 256 << 10 // bytes that a connection brings in all
	maxConns    = 16        // there are eight requests at most
	pathReview  = "apis/authentication.k8s.io/v1/selfsubjectreviews"
	bodyReview  = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	anonymous   = "system:anonymous"
)

// apiAnswer is what the API server, or what stands in its place, answered.
type apiAnswer struct {
	status int
	page   bool // for a browser
	body   []byte
	object apiObject // of body
}

// apiObject is a metav1.Status, a SelfSubjectReview, a version.Info, or what discovery answers.
type apiObject struct {
	Kind, Message, GitVersion string
	Status                    json.RawMessage
}

// message is a metav1.Status's.
func (a *apiAnswer) message() string {
	if a.object.Kind != "Status" {
		return ""
	}
	return a.object.Message
}

// isOf reports whether only an API server that serves below server answers so. A Status with 404
// does not say it, nor with a success: none has one. Nor does a 403 that repeats the path of
// server: that API server serves elsewhere.
func (a *apiAnswer) isOf(server *url.URL) bool {
	path := strings.TrimRight(server.Path, "/")
	switch a.object.Kind {
	case "Status":
		return a.status != http.StatusNotFound && a.status/100 != 2 && (path == "" || !strings.Contains(a.message(), ` path "`+path+`/`))
	case "SelfSubjectReview", "APIVersions", "APIGroupList":
		return true
	}
	return a.object.GitVersion != ""
}

// errNoCredentials is the error of a plugin: nothing was sent.
type errNoCredentials struct{ error }

func (e *errNoCredentials) Unwrap() error { return e.error }

// queryAPI asks for our user name, whether the API server is ready, and its version.
func (p *probing) queryAPI(ctx context.Context) bool {
	base := p.transport
	if base == nil {
		base = &http.Transport{
			DialContext: p.connect, DialTLSContext: p.connect, ForceAttemptHTTP2: p.tls != nil,
			Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		}
	}
	base.MaxResponseHeaderBytes = maxAnswer
	defer base.CloseIdleConnections()
	seen := &sentRequests{rt: base}
	rt, err := transport.HTTPWrappersForConfig(p.creds, seen)
	if err != nil {
		return p.fail(PhaseAuth, 0, finding{err.Error(), "Correct the user entry of the kubeconfig."}, err)
	}
	ask := func(method, path string) (*apiAnswer, error) { return p.sendRequest(ctx, rt, seen, method, path) }
	began := time.Now()
	review, err := ask(http.MethodPost, pathReview)
	if !p.addAuthStep(time.Since(began)+p.pluginRan, review, err, ask) {
		return false
	}
	began = time.Now()
	ready, err := ask(http.MethodGet, "readyz")
	if !p.addReadyzStep(time.Since(began), ready, err) {
		return false
	}
	if a, err := ask(http.MethodGet, "version"); err == nil && a.status == http.StatusOK {
		p.report.Version = printable.Text(a.object.GitVersion, maxText)
	}
	return true
}

// sentRequests tells a plugin's failure from the connection's, and keeps what an answer
// may repeat.
type sentRequests struct {
	rt http.RoundTripper
	n  atomic.Int64

	mu      sync.Mutex // guards secrets
	secrets []string   // that were sent
}

func (s *sentRequests) RoundTrip(req *http.Request) (*http.Response, error) {
	s.n.Add(1)
	s.mu.Lock()
	s.secrets = mask.Authorization(req.Header.Get("Authorization"))
	s.mu.Unlock()
	return s.rt.RoundTrip(req)
}

func (s *sentRequests) sentSecrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets
}

func (p *probing) sendRequest(ctx context.Context, rt http.RoundTripper, seen *sentRequests, method, path string) (*apiAnswer, error) {
	if p.pluginErr != nil {
		return nil, &errNoCredentials{p.pluginErr}
	}
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(bodyReview)
	}
	u := p.server.JoinPath(path)
	if path == "readyz" {
		u.RawQuery = "verbose"
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, */*")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	before := seen.n.Load()
	resp, err := p.roundTrip(rt, req)
	if err != nil {
		if seen.n.Load() == before {
			return nil, &errNoCredentials{ended.Error(ctx, err)}
		}
		if p.received.Load() {
			err = errReceived
		}
		return nil, ended.Error(ctx, mask.Error(err, seen.sentSecrets()))
	}
	defer resp.Body.Close()
	if err := route.CheckSwitched(req, resp); err != nil {
		return nil, err
	}
	a := &apiAnswer{status: resp.StatusCode}
	a.page = strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/html")
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return nil, ended.Error(ctx, err)
	}
	a.body = []byte(mask.Text(string(a.body), true, seen.sentSecrets()))
	_ = json.Unmarshal(a.body, &a.object) // what is no object has no kind
	return a, nil
}

// roundTrip waits for a plugin, which knows no context, no longer than for the
// rest.
func (p *probing) roundTrip(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	if p.user.plugin == "" {
		return rt.RoundTrip(req)
	}
	return await(req.Context(), func() (*http.Response, error) { return rt.RoundTrip(req) }) // p.close ends the connection
}

// isAPIServer reports whether the answer a, to a SelfSubjectReview, is of an API server. An older
// one does not know that kind, and a proxy may refuse it: then one of kubectl's paths is enough.
func (p *probing) isAPIServer(a *apiAnswer, ask func(method, path string) (*apiAnswer, error)) bool {
	var err error
	for _, path := range []string{"version", "api", "apis"} {
		if a.isOf(p.server) {
			return true
		}
		if a, err = ask(http.MethodGet, path); err != nil {
			return false
		}
	}
	return a.isOf(p.server)
}

// addAuthStep adds PhaseAuth. Any answer of an API server to a known user is
// enough: it may be too old to name the user.
func (p *probing) addAuthStep(took time.Duration, a *apiAnswer, err error, ask func(method, path string) (*apiAnswer, error)) bool {
	var none *errNoCredentials
	switch {
	case errors.As(err, &none):
		if timedOut(err) {
			return p.fail(PhaseAuth, took, p.user.pluginHangs(), err)
		}
		return p.fail(PhaseAuth, took, p.user.pluginFails(none.error), err)
	case err != nil:
		return p.fail(PhaseAuth, took, p.requestFinding(err), err)
	case a.status == http.StatusUnauthorized && !a.page:
		return p.failRefused(PhaseAuth, took, a, p.user.refusedFinding(p.rejectedCredentials()))
	case a.status == http.StatusTooManyRequests || a.status >= http.StatusBadGateway && a.status <= http.StatusGatewayTimeout:
		return p.failRefused(PhaseAuth, took, a, a.busyFinding())
	case !p.isAPIServer(a, ask):
		return p.failRefused(PhaseAuth, took, a, p.strangerFinding(a))
	}
	name := a.reviewedUser()
	if !p.user.isEmpty() && (name == anonymous || a.status == http.StatusForbidden && strings.Contains(a.message(), `"`+anonymous+`"`)) {
		return p.failRefused(PhaseAuth, took, a, p.user.refusedFinding(p.credentialsLost()))
	}
	detail := "accepted"
	switch {
	case p.user.isEmpty():
		detail = "as " + anonymous + ": the kubeconfig has no credentials"
	case name != "":
		detail = "as " + name
	}
	return p.add(Step{Phase: PhaseAuth, Took: took, Detail: detail})
}

func (a *apiAnswer) busyFinding() finding {
	return finding{strings.TrimSuffix(fmt.Sprintf("the API server, or a load balancer before it, answers %d: %s", a.status, a.message()), ": "),
		"Try again; if it stays so, look at the control plane's load and log."}
}

// strangerFinding explains an answer that is not of an API server.
func (p *probing) strangerFinding(a *apiAnswer) finding {
	what := "something else"
	switch {
	case a.status >= http.StatusInternalServerError:
		return a.busyFinding()
	case a.page || a.status/100 == 3:
		what = "a web page"
	case p.server.Scheme == "http":
		return finding{fmt.Sprintf("no API server of Kubernetes answers at %s without TLS, but something else (%d)", p.report.Server, a.status),
			"Write https:// in place of http:// in the kubeconfig's server: what answers may be the API server, which wants TLS, or a proxy, which wants CONNECT."}
	}
	return finding{fmt.Sprintf("no API server of Kubernetes answers at %s, but %s (%d)", p.report.Server, what, a.status),
		"Correct server in the kubeconfig, path included; a login page or a gateway may be in front of the API server."}
}

// statusError is the answer that a phase failed with.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return fmt.Sprintf("the answer is %d %s", e.status, http.StatusText(e.status))
}

func (p *probing) failRefused(phase Phase, took time.Duration, a *apiAnswer, f finding) bool {
	return p.fail(phase, took, f, &statusError{a.status})
}

// reviewedUser is the user name of a SelfSubjectReview.
func (a *apiAnswer) reviewedUser() string {
	var review struct{ UserInfo struct{ Username string } }
	if a.status/100 != 2 || json.Unmarshal(a.object.Status, &review) != nil {
		return ""
	}
	return review.UserInfo.Username
}

func (p *probing) requestFinding(err error) finding {
	if f, ok := canceledFinding(err); ok {
		return f
	}
	if alert, ok := alertOf(err); ok {
		return p.alertFinding(alert)
	}
	switch {
	case timedOut(err):
		return finding{"the API server does not answer to a request", "Try again; if it stays so, look at the control plane's load and log."}
	case hungUp(err):
		return finding{"the API server closed the connection at the first request", "Try again; if it stays so, look at the log of the API server, and of the load balancer before it."}
	}
	return finding{"the request fails: " + err.Error(), "Check what listens at " + route.AddressOf(p.server) + "."}
}

const adviceNoPassword = "Use a certificate or token: kube-apiserver takes no user name and password since Kubernetes 1.19."

// rejectedCredentials explains a 401.
func (p *probing) rejectedCredentials() finding {
	switch u := p.user; {
	case u.isEmpty():
		return finding{"the API server wants credentials, and the kubeconfig has none", "Add a user to the current context."}
	case u.token:
		return finding{"the API server does not accept the token (401): it has expired or was revoked, or is of another cluster",
			"Get a new token (kubectl create token, or where this one came from)."}
	case u.basic:
		return finding{"the API server does not accept the user name and password (401)", adviceNoPassword}
	case u.plugin != "":
		return finding{"the API server does not accept what the plugin " + u.plugin + " gives (401)", "Log in anew with the plugin, and check that it is set up for this cluster."}
	}
	return finding{fmt.Sprintf("the API server does not accept the client certificate (401): it is issued by %q, which may not be what this cluster trusts for clients", issuerName(p.user.cert)),
		"Check that the kubeconfig is of this cluster and of its present CA, and the clocks. Get a new kubeconfig."}
}

// credentialsLost says that the credentials did not arrive.
func (p *probing) credentialsLost() finding {
	f := finding{"the API server takes us for " + anonymous + ": our credentials do not arrive", ""}
	switch {
	case p.user.basic:
		f.advice = adviceNoPassword
	case p.user.cert != nil:
		f.advice = "Look for a load balancer or proxy that ends TLS before the API server: have it pass TLS through, or use a token."
	default:
		f.advice = "Look for what takes the Authorization header away: a gateway before the API server."
	}
	return f
}

// readyDetails are the answers with which PhaseReady passes. A 403 says that we are known, and may
// not look.
var readyDetails = map[int]string{
	http.StatusOK:           "ok",
	http.StatusForbidden:    "authenticated, but not allowed to read /readyz (403)",
	http.StatusUnauthorized: "authenticated, but /readyz is kept closed (401)",
	http.StatusNotFound:     "the API server has no /readyz (404)",
}

// addReadyzStep adds PhaseReady.
func (p *probing) addReadyzStep(took time.Duration, a *apiAnswer, err error) bool {
	if err != nil {
		return p.fail(PhaseReady, took, p.requestFinding(err), err)
	}
	if detail := readyDetails[a.status]; detail != "" {
		return p.add(Step{Phase: PhaseReady, Took: took, Detail: detail})
	}
	return p.failRefused(PhaseReady, took, a, notReady(a))
}

// notReady names the checks that fail, of the answer to /readyz?verbose.
func notReady(a *apiAnswer) finding {
	var failing []string
	for line := range bytes.Lines(a.body) {
		if check, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("[-]")); ok {
			name, _, _ := bytes.Cut(check, []byte(" "))
			failing = append(failing, string(name))
		}
	}
	f := finding{"the API server is not ready: " + strings.Join(failing, ", "), "Look at the control plane: the API server's log says why."}
	switch {
	case len(failing) == 0:
		f.cause += fmt.Sprintf("it answers %d", a.status)
	case slices.ContainsFunc(failing, func(name string) bool { return strings.HasPrefix(name, "etcd") }):
		f.advice = "Look at etcd first: the API server can't reach it, or it has lost its quorum."
	}
	return f
}
