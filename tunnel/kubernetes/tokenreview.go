package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// TokenReview lets clients in by tokens of the cluster that the gateway runs
// in, such as those of ServiceAccounts: [TokenReview.Authenticate] is for the
// field of that name of a [gateway.Gateway]. The token is the password of basic
// credentials, whose user is the cluster, as in the proxy URL
// https://default%2Fprod:TOKEN@gateway.example.com; or it is a bearer token. A
// password of SOCKS5 may be one too, but has 255 bytes at most (RFC 1929), which a
// ServiceAccount's token is longer than.
//
// It takes the right to create tokenreviews (authentication.k8s.io) and,
// unless Allow is set, subjectaccessreviews (authorization.k8s.io). Both are of
// the whole cluster: the ClusterRole system:auth-delegator has them.
//
// Its methods are safe for concurrent use; its fields must not change after the
// first call.
type TokenReview struct {
	// Client reaches the API server. Required. Each client that is not
	// remembered takes two requests: rest.Config.QPS is the limit.
	Client kubernetes.Interface
	// Audiences are those of which a token has to have one: names of the
	// gateway that no other service has, as in kubectl create token --audience.
	// Required: with the API server's own, which is possible, whoever sees a
	// token here can use it there.
	Audiences []string
	// ClusterOf says which cluster a client is to reach. An error refuses the
	// client, with 403 if it is syscall.EACCES. If nil, the user name that it
	// showed: a bearer token has none, and leads nowhere without this field.
	ClusterOf func(user authenticationv1.UserInfo, c gateway.Credentials) (string, error)
	// Allow decides whether the user may reach the cluster, "" if that is not
	// known; its error is the cause of a refusal, unless it is a
	// [gateway.Unavailable]. If nil, the API server is asked whether the
	// user has the verb "connect" on clusters/tunnel in the API group
	// cluster.x-k8s.io, of that name and namespace: see [AccessRule].
	Allow func(ctx context.Context, user authenticationv1.UserInfo, cluster string) error
	// Remember is how long a client is let in again without a question: a token
	// that was revoked, or a right that was taken, counts as long. A token that
	// ends before is not remembered any longer. Zero means 10 seconds; if
	// negative, there is a question each time.
	Remember time.Duration
	// MaxRemembered bounds how many tokens, and how many rights, are
	// remembered. Zero means 10,000.
	MaxRemembered int

	users  memory[[sha256.Size]byte, reviewed]
	rights memory[[sha256.Size]byte, struct{}]
}

// reviewed is whose a token is.
type reviewed struct {
	user authenticationv1.UserInfo
	ends time.Time // of the token; zero if unknown
}

const (
	defaultRemember      = 10 * time.Second // as kube-apiserver itself
	defaultMaxRemembered = 10_000
	maxToken             = 32 << 10
)

// Authenticate is for the Gateway's field of that name. A client without a
// token that is good for one of the Audiences gets [gateway.ErrCredentials]; one
// that may not reach the cluster, syscall.EACCES; where the API server can't be
// asked, the error is a [gateway.Unavailable]. No error holds a token.
func (r *TokenReview) Authenticate(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
	if err := r.check(); err != nil {
		return gateway.Identity{}, err
	}
	token := c.Bearer
	if token == "" {
		token = c.Password
	}
	if token == "" || len(token) > maxToken {
		return gateway.Identity{}, gateway.ErrCredentials
	}
	sum := sha256.Sum256([]byte(token))
	known, ok := r.users.get(sum)
	if !ok {
		var err error
		if known, err = r.review(ctx, token); err != nil {
			return gateway.Identity{}, err
		}
		r.users.put(sum, known, r.until(known.ends), r.maxRemembered())
	}
	cluster, err := r.cluster(known.user, c)
	if err != nil {
		return gateway.Identity{}, wrapped("the cluster of "+known.user.Username, err)
	}
	if err := r.allow(ctx, sum, known, cluster); err != nil {
		return gateway.Identity{}, err
	}
	return gateway.Identity{Name: known.user.Username, Cluster: cluster}, nil
}

// review asks the API server whose the token is.
func (r *TokenReview) review(ctx context.Context, token string) (reviewed, error) {
	answer, err := r.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: slices.Clone(r.Audiences)},
	}, metav1.CreateOptions{})
	if err != nil {
		return reviewed{}, unavailable{wrapped("token review", err)}
	}
	status := answer.Status
	// An authenticator that knows no audiences names none, and means the API
	// server's.
	meant := slices.ContainsFunc(status.Audiences, func(a string) bool { return slices.Contains(r.Audiences, a) })
	switch {
	case !status.Authenticated:
		// Status.Error may quote anything.
		return reviewed{}, fmt.Errorf("tunnel/kubernetes: token review: the API server does not take the token: %w", gateway.ErrCredentials)
	case !meant:
		return reviewed{}, fmt.Errorf("tunnel/kubernetes: token review: the token is for other audiences: %w", gateway.ErrCredentials)
	case status.User.Username == "":
		return reviewed{}, fmt.Errorf("tunnel/kubernetes: token review: the token is nobody's: %w", gateway.ErrCredentials)
	}
	return reviewed{status.User, expiry(token)}, nil
}

// expiry reads the end of a JSON Web Token that was found to be good. Zero if
// it is something else.
func expiry(token string) time.Time {
	var claims struct {
		Exp float64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Exp <= 0 || claims.Exp > math.MaxInt32*100 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0)
}

// cluster is what the client is to reach.
func (r *TokenReview) cluster(user authenticationv1.UserInfo, c gateway.Credentials) (string, error) {
	if r.ClusterOf != nil {
		return r.ClusterOf(user, c)
	}
	return c.User, nil
}

// until is how long something is remembered of a token with that end.
func (r *TokenReview) until(ends time.Time) time.Time {
	remember := r.Remember
	if remember == 0 {
		remember = defaultRemember
	}
	until := time.Now().Add(remember)
	if !ends.IsZero() && ends.Before(until) {
		return ends
	}
	return until
}

func (r *TokenReview) maxRemembered() int {
	if r.MaxRemembered <= 0 {
		return defaultMaxRemembered
	}
	return r.MaxRemembered
}

func (r *TokenReview) check() error {
	switch {
	case r.Client == nil:
		return unavailable{required("token review", "Client")}
	case len(r.Audiences) == 0 || slices.Contains(r.Audiences, ""):
		return unavailable{required("token review", "Audiences")}
	}
	return nil
}

// isUnavailable reports whether the error says that it decides nothing.
func isUnavailable(err error) bool {
	var u gateway.Unavailable
	return errors.As(err, &u) && u.Unavailable()
}
