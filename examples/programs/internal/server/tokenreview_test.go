package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/internal/test/clitest"
)

const audience = "tunnel.example.com"

// tokenOf looks like a token of a ServiceAccount for the audience.
func tokenOf(name string) string {
	signature := fmt.Appendf(make([]byte, 64), "%s", name)
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"ES256"}`)) + "." + encode([]byte(`{"aud":["`+audience+`"],"exp":4102444800}`)) + "." + encode(signature)
}

// reviewer is an API server to which tokenOf("annie") and "opaque" are annie's, for
// audience, and who lets annie connect to cluster. asked counts tokens.
func reviewer(t *testing.T) (s *httptest.Server, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		switch review := object.(type) {
		case *authenticationv1.TokenReview:
			asked.Add(1)
			known := review.Spec.Token == tokenOf("annie") || review.Spec.Token == "opaque"
			if known && slices.Contains(review.Spec.Audiences, audience) {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{audience}, User: authenticationv1.UserInfo{Username: "annie"}}
			}
		case *authorizationv1.SubjectAccessReview:
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = review.Spec.User == "annie" && a.Namespace+"/"+a.Name == cluster && a.Verb == "connect"
		default:
			t.Errorf("got a request for %s, %v", r.URL, err)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s, asked
}

// kubeconfigOf returns a file that leads to a server without TLS.
func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// With an audience a token is as good as a ticket, where RBAC lets it; without,
// nobody is asked.
func TestTokenReview(t *testing.T) {
	api, asked := reviewer(t)
	dir := t.TempDir()
	p := startServer(t, dir, "--connect", "127.0.0.1:0", "--door-token-audience", audience, "--kubeconfig", kubeconfigOf(t, api.URL))
	opaque := startServer(t, t.TempDir(), "--connect", "127.0.0.1:0", "--door-token-audience", audience, "--door-token-opaque", "--kubeconfig", kubeconfigOf(t, api.URL))
	other := startServer(t, t.TempDir(), "--connect", "127.0.0.1:0")
	inv := newInvitation(t, dir, "--server", address(p, "listen"))
	receive(t, "agent", startAgent(t, inv, echo(t), nil).connected)
	p.Await(`msg=connected cluster=default/prod`)
	proxy := "http://" + address(p, "connect")
	for _, tt := range []struct {
		name, proxy string
		want        int   // status; zero is success
		asks        int32 // about tokens
	}{
		{"a ticket", output(t, "", "ticket", cluster, "--state", dir, "--gateway", proxy), 0, 0},
		{"a token", with(url.UserPassword(cluster, tokenOf("annie")), proxy), 0, 1},
		{"a token for another cluster", with(url.UserPassword("default/other", tokenOf("annie")), proxy), 403, 0},
		{"a wrong token", with(url.UserPassword(cluster, tokenOf("bob")), proxy), 407, 1},
		{"the same once more", with(url.UserPassword(cluster, tokenOf("bob")), proxy), 407, 0},
		{"an opaque token", with(url.UserPassword(cluster, "opaque"), proxy), 407, 0},
		{"one that is asked about, without an agent", with(url.UserPassword(cluster, "opaque"), "http://"+address(opaque, "connect")), 503, 1},
		{"nothing", proxy, 407, 0},
		{"a server without an audience", with(url.UserPassword(cluster, tokenOf("annie")), "http://"+address(other, "connect")), 407, 0},
	} {
		before := asked.Load()
		var refusal *dialer.Refusal
		switch err := through(t, tt.proxy, nil); {
		case tt.want == 0 && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != 0 && (!errors.As(err, &refusal) || refusal.StatusCode != tt.want):
			t.Errorf("%s: got %v, want %d", tt.name, err, tt.want)
		}
		if n := asked.Load() - before; n != tt.asks {
			t.Errorf("%s: got %d questions, want %d", tt.name, n, tt.asks)
		}
	}
	clitest.CheckMetrics(t, "http://"+address(p, "status")+"/metrics", `causeway_token_reviews_total{result="accepted"} 1`,
		`causeway_token_reviews_total{result="refused"} 4`, `causeway_token_reviews_total{result="unavailable"} 0`)
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestTokenReviewFlags(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tt := range []struct {
		args, want string
		usage      bool
	}{
		{"--door-token-audience a", "--door-token-audience goes with --connect or --connect-tls", true},
		{"--door-token-audience a --socks5 127.0.0.1:0", "--door-token-audience goes with --connect or --connect-tls", true},
		{"--door-token-opaque --connect 127.0.0.1:0", "--door-token-opaque goes with --door-token-audience", true},
		{"--door-token-audience a --connect 127.0.0.1:0", "--door-token-audience: --kubeconfig: ", false},
		{"--door-token-audience a --connect 127.0.0.1:0 --kubeconfig /none", "--door-token-audience: --kubeconfig: ", false},
	} {
		err := run(t.Context(), append(strings.Fields(tt.args), "--listen", "127.0.0.1:0", "--state", t.TempDir()), nil, io.Discard, io.Discard)
		var mistake cli.UsageError
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &mistake) != tt.usage {
			t.Errorf("%s: got %v, want %q, a mistake of usage %v", tt.args, err, tt.want, tt.usage)
		}
	}
}
