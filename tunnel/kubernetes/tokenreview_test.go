package kubernetes_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authenticationfake "k8s.io/client-go/kubernetes/typed/authentication/v1/fake"
	authorizationfake "k8s.io/client-go/kubernetes/typed/authorization/v1/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/causewayproject/causeway/tunnel/gateway"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// goodSignature is that of a token which the reviewer takes, badSignature of another.
const (
	goodSignature = "secret-good-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	badSignature  = "secret-bad--AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

var goodToken = jwt(`{"aud":"tunnel","exp":4102444800}`)

var annie = authenticationv1.UserInfo{Username: "system:serviceaccount:apps:annie", UID: "u1", Groups: []string{"system:serviceaccounts"},
	Extra: map[string]authenticationv1.ExtraValue{"pod": {"p1"}}}

// reviewer is an API server that knows tokens and rights.
type reviewer struct {
	*kubernetes.TokenReview
	away           map[string]bool // resources
	tokens, rights int             // how often it was asked
	audiences      []string        // of the answer
	user           authenticationv1.UserInfo
	denied         bool // in spite of a right
	spec           authenticationv1.TokenReviewSpec
	access         authorizationv1.SubjectAccessReviewSpec
}

// newReviewer knows good tokens, which have goodSignature, and lets annie
// connect to default/prod.
func newReviewer() *reviewer {
	fake := &clienttesting.Fake{}
	c := clients{authentication: &authenticationfake.FakeAuthenticationV1{Fake: fake}, authorization: &authorizationfake.FakeAuthorizationV1{Fake: fake}}
	r := &reviewer{away: map[string]bool{}, audiences: []string{"tunnel"}, user: annie,
		TokenReview: &kubernetes.TokenReview{Client: c, Audiences: []string{"other", "tunnel"}}}
	fake.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		r.tokens++
		r.spec = review.Spec
		if r.away["tokenreviews"] {
			return true, nil, fmt.Errorf("the firewall: %w", syscall.EACCES)
		}
		if strings.Contains(review.Spec.Token, goodSignature) {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: r.user, Audiences: r.audiences}
		} else {
			review.Status.Error = "what is " + review.Spec.Token
		}
		return true, review, nil
	})
	fake.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r.rights++
		r.access = review.Spec
		if r.away["subjectaccessreviews"] {
			return true, nil, fmt.Errorf("the firewall: %w", syscall.EACCES)
		}
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = review.Spec.User == annie.Username && a.Name == "prod" && a.Namespace == "default"
		review.Status.Denied = r.denied
		return true, review, nil
	})
	return r
}

// outcome is what the gateway makes of an error.
func outcome(err error) string {
	var u gateway.Unavailable
	switch {
	case err == nil:
		return "let in"
	case errors.As(err, &u) && u.Unavailable():
		return "unavailable"
	case errors.Is(err, syscall.EACCES):
		return "forbidden"
	case errors.Is(err, gateway.ErrCredentials):
		return "unknown"
	}
	return "refused"
}

func TestTokenReview(t *testing.T) {
	basic := gateway.Credentials{User: "default/prod", Password: goodToken}
	for _, tt := range []struct {
		name   string
		c      gateway.Credentials
		set    func(*reviewer)
		want   string
		cause  string
		reason error
		asked  [2]int // tokens, rights
	}{
		{name: "basic", c: basic, want: "let in", asked: [2]int{1, 1}},
		{name: "nothing shown", want: "unknown"},
		{name: "a user alone", c: gateway.Credentials{User: "default/prod"}, want: "unknown"},
		{name: "too long", c: gateway.Credentials{Bearer: strings.Repeat("x", 1<<20)}, want: "unknown"},
		{name: "wrong", c: gateway.Credentials{User: "default/prod", Password: wrongOf(goodToken)}, want: "unknown", asked: [2]int{1, 0}},
		{name: "opaque", c: gateway.Credentials{Bearer: goodSignature}, want: "unknown", cause: "no signed JSON Web Token"},
		{name: "an opaque one that is asked about", c: gateway.Credentials{User: "default/prod", Password: goodSignature}, set: func(r *reviewer) { r.Opaque = true }, want: "let in", asked: [2]int{1, 1}},
		{name: "too long for any question", c: gateway.Credentials{Bearer: strings.Repeat("x", 1<<20)}, set: func(r *reviewer) { r.Opaque = true }, want: "unknown"},
		{name: "another audience", c: basic, set: func(r *reviewer) { r.audiences = []string{"api"} }, want: "unknown", cause: "audiences", asked: [2]int{1, 0}},
		{name: "an authenticator without audiences", c: basic, set: func(r *reviewer) { r.audiences = nil }, want: "unknown", cause: "audiences", asked: [2]int{1, 0}},
		{name: "nobody", c: basic, set: func(r *reviewer) { r.user.Username = "" }, want: "unknown", cause: "nobody's", asked: [2]int{1, 0}},
		{name: "away", c: basic, set: func(r *reviewer) { r.away["tokenreviews"] = true }, want: "unavailable", reason: syscall.EACCES, asked: [2]int{1, 0}},
		{name: "away in between", c: basic, set: func(r *reviewer) { r.away["subjectaccessreviews"] = true }, want: "unavailable", reason: syscall.EACCES, asked: [2]int{1, 1}},
		{name: "another cluster", c: gateway.Credentials{User: "default/dev", Password: goodToken}, want: "forbidden", cause: `annie may not reach "default/dev"`, asked: [2]int{1, 1}},
		{name: "denied by another authorizer", c: basic, set: func(r *reviewer) { r.denied = true }, want: "forbidden", asked: [2]int{1, 1}},
		{name: "a bearer has no cluster", c: gateway.Credentials{Bearer: goodToken}, want: "forbidden", asked: [2]int{1, 0}},
		{name: "all clusters of a namespace", c: gateway.Credentials{User: "default/", Password: goodToken}, want: "forbidden", asked: [2]int{1, 0}},
		{name: "of all namespaces", c: gateway.Credentials{User: "/prod", Password: goodToken}, want: "forbidden", asked: [2]int{1, 0}},
		{name: "without a namespace", c: gateway.Credentials{User: "prod", Password: goodToken}, want: "forbidden", asked: [2]int{1, 1}},
		{name: "a bearer's cluster", c: gateway.Credentials{Bearer: goodToken, Address: "prod.default:443"}, set: func(r *reviewer) {
			r.ClusterOf = func(user authenticationv1.UserInfo, c gateway.Credentials) (string, error) {
				return "default/" + strings.TrimSuffix(c.Address, ".default:443"), nil
			}
		}, want: "let in", asked: [2]int{1, 1}},
		{name: "no cluster for the user", c: basic, set: func(r *reviewer) {
			r.ClusterOf = func(authenticationv1.UserInfo, gateway.Credentials) (string, error) { return "", syscall.EACCES }
		}, want: "forbidden", asked: [2]int{1, 0}},
		{name: "a rule of its own", c: gateway.Credentials{Bearer: goodToken}, set: func(r *reviewer) {
			r.SetAllow(func(context.Context, authenticationv1.UserInfo, string) error { return nil })
			r.ClusterOf = func(authenticationv1.UserInfo, gateway.Credentials) (string, error) { return "default/prod", nil }
		}, want: "let in", asked: [2]int{1, 0}},
		{name: "a rule that can't tell", c: basic, set: func(r *reviewer) {
			r.SetAllow(func(context.Context, authenticationv1.UserInfo, string) error { return unavailable{} })
		}, want: "unavailable", asked: [2]int{1, 0}},
		{name: "no audiences", c: basic, set: func(r *reviewer) { r.Audiences = nil }, want: "unavailable", cause: "field Audiences is required"},
		{name: "an empty audience", c: basic, set: func(r *reviewer) { r.Audiences = []string{""} }, want: "unavailable", cause: "field Audiences is required"},
		{name: "no client", c: basic, set: func(r *reviewer) { r.Client = nil }, want: "unavailable", cause: "field Client is required"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newReviewer()
			if tt.set != nil {
				tt.set(r)
			}
			id, err := r.Authenticate(t.Context(), tt.c)
			if got := outcome(err); got != tt.want || tt.cause != "" && !strings.Contains(fmt.Sprint(err), tt.cause) || tt.reason != nil && !errors.Is(err, tt.reason) {
				t.Errorf("got %s (%v), want %s (%s)", got, err, tt.want, tt.cause)
			}
			if strings.Contains(fmt.Sprintf("%v %#v", err, err), "secret") {
				t.Errorf("the token is in %v", err)
			}
			want := gateway.Identity{}
			if tt.want == "let in" {
				want = gateway.Identity{Name: annie.Username, Cluster: "default/prod"}
			}
			if id != want || [2]int{r.tokens, r.rights} != tt.asked {
				t.Errorf("got %+v after %d and %d questions, want %+v after %v", id, r.tokens, r.rights, want, tt.asked)
			}
		})
	}
}

// wrongOf returns the token with a signature that is wrong.
func wrongOf(token string) string { return strings.ReplaceAll(token, goodSignature, badSignature) }

type unavailable struct{}

func (unavailable) Error() string     { return "ask again" }
func (unavailable) Unavailable() bool { return true }

// What the API server is asked is what the documentation says.
func TestTokenReviewAsks(t *testing.T) {
	r := newReviewer()
	if _, err := r.Authenticate(t.Context(), gateway.Credentials{User: "default/prod", Password: goodToken}); err != nil {
		t.Fatal(err)
	}
	if want := (authenticationv1.TokenReviewSpec{Token: goodToken, Audiences: []string{"other", "tunnel"}}); !cmp.Equal(r.spec, want) {
		t.Errorf("got %+v, want %+v", r.spec, want)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: annie.Username, UID: annie.UID, Groups: annie.Groups, Extra: map[string]authorizationv1.ExtraValue{"pod": {"p1"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "cluster.x-k8s.io", Resource: "clusters", Subresource: "tunnel",
			Verb: "connect", Namespace: "default", Name: "prod"},
	}
	if !cmp.Equal(r.access, want) {
		t.Errorf("got %+v, want %+v", r.access, want)
	}
	rule := kubernetes.AccessRule("prod")
	if !slices.Equal(rule.APIGroups, []string{"cluster.x-k8s.io"}) || !slices.Equal(rule.Resources, []string{"clusters/tunnel"}) ||
		!slices.Equal(rule.Verbs, []string{"connect"}) || !slices.Equal(rule.ResourceNames, []string{"prod"}) {
		t.Errorf("got the rule %+v", rule)
	}
}

// jwt is a good token.
func jwt(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"ES256"}`)) + "." + encode([]byte(claims)) + "." + goodSignature
}

// How long a client is let in again without a question.
func TestTokenReviewRemembers(t *testing.T) {
	in := func(d time.Duration) string { return fmt.Sprintf(`{"exp":%d}`, time.Now().Add(d).Unix()) }
	for _, tt := range []struct {
		name     string
		remember time.Duration
		token    func() string
		want     time.Duration
	}{
		{"by default", 0, func() string { return goodToken }, 10 * time.Second},
		{"a minute", time.Minute, func() string { return goodToken }, time.Minute},
		{"never", -1, func() string { return goodToken }, 0},
		{"a token that ends before", time.Minute, func() string { return jwt(in(30 * time.Second)) }, 30 * time.Second},
		{"a token that ends later", time.Minute, func() string { return jwt(in(time.Hour)) }, time.Minute},
		{"a token that has ended", time.Minute, func() string { return jwt(in(-time.Second)) }, 0},
		{"no end", time.Minute, func() string { return jwt("{}") }, time.Minute},
		{"an end for ever", time.Minute, func() string { return jwt(`{"exp":1e300}`) }, time.Minute},
		{"no claims", time.Minute, func() string { return jwt("[") }, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReviewer()
				r.Remember, r.Opaque = tt.remember, true
				c := gateway.Credentials{User: "default/prod", Password: tt.token()}
				ask := func(want int) {
					t.Helper()
					if _, err := r.Authenticate(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					if r.tokens != want || r.rights != want {
						t.Errorf("got %d and %d questions after %v, want %d", r.tokens, r.rights, tt.want, want)
					}
				}
				ask(1)
				if tt.want > 0 {
					time.Sleep(tt.want - 1)
					ask(1)
					time.Sleep(time.Nanosecond)
				}
				ask(2)
			})
		})
	}
}

// What is remembered is for that token and that cluster, and bounded.
func TestTokenReviewRemembersWhat(t *testing.T) {
	r := newReviewer()
	r.SetMaxRemembered(20)
	c := gateway.Credentials{User: "default/prod", Password: goodToken}
	want := func(c gateway.Credentials, want string, tokens, rights int) {
		t.Helper()
		_, err := r.Authenticate(t.Context(), c)
		if got := outcome(err); got != want || r.tokens != tokens || r.rights != rights {
			t.Errorf("%s: got %s after %d and %d questions, want %s after %d and %d", c.User, got, r.tokens, r.rights, want, tokens, rights)
		}
	}
	want(c, "let in", 1, 1)
	want(c, "let in", 1, 1)
	other := c
	other.User = "default/dev"
	want(other, "forbidden", 1, 2)
	want(other, "forbidden", 1, 2)
	other = c
	other.Password += "-2"
	want(other, "let in", 2, 3)
	bad := gateway.Credentials{User: "default/prod", Password: wrongOf(goodToken)}
	want(bad, "unknown", 3, 3)
	want(bad, "unknown", 3, 3)
	for n := range 100 {
		other.Password = fmt.Sprintf("%s%02d", goodToken, n)
		want(other, "let in", 4+n, 4+n)
		want(other, "let in", 4+n, 4+n)
	}
	if users, rights := r.Remembered(); users > 20 || rights > 20 || users < 10 || rights < 10 {
		t.Errorf("got %d tokens and %d rights remembered, want at most 20", users, rights)
	}
}
