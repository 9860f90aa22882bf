package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// TokenReview authenticates clients by tokens of the cluster that the gateway runs
// in, such as those of ServiceAccounts: set [TokenReview.Authenticate] as
// Authenticate of a [gateway.Gateway]. The token is the password of basic
// credentials, whose user name is the cluster, as in the proxy URL
// https://default%2Fprod:TOKEN@gateway.example.com; or it is a bearer token. It may
// be the password of SOCKS5, too, but that has 255 bytes at most (RFC 1929), and
// a ServiceAccount's token is longer.
//
// Strangers cause only a few requests to the API server at a time, and a client
// waits for at most one review of each other address:
//
//	a token that is no JSON Web Token, that is for none of     refused without a question,
//	the Audiences or that ended more than 5 minutes ago        unless Opaque is set
//	a token, or a right, that was refused                      refused for 5 seconds more
//	the same question at the same time                         is one request
//	questions about tokens                                     4 at once, and 4 more about
//	                                                           tokens that were good before
//	questions about rights                                     likewise
//	one more about a token                                     waits for the turn of its address
//	one more about a right                                     waits for the turn of its user
//	more than 256 that wait, of an address or a user;          [gateway.Unavailable]
//	more than 16 different tokens of one HTTP/2 connection
//
// An IPv6 address counts by its network (/64). Behind a load balancer that hides
// addresses, all clients have the same one: there, a stranger can delay new
// clients, and hardly those whose token was good before.
//
// It needs the right to create tokenreviews (authentication.k8s.io) and, unless
// Allow is set, subjectaccessreviews (authorization.k8s.io), both in the whole
// cluster: the ClusterRole system:auth-delegator grants them.
//
// Its methods are safe for concurrent use; its fields must not change after the
// first call.
type TokenReview struct {
	// Client reaches the API server; a kubernetes.Interface of client-go is one. Required.
	// Each client that is not remembered takes two requests, and rest.Config.QPS bounds those of clients and strangers
	// together. client-go's default, 5, is too low: strangers could delay a client
	// by seconds. Set 100 or more, and use the Client for nothing else.
	Client interface {
		AuthenticationV1() authenticationclient.AuthenticationV1Interface
		AuthorizationV1() authorizationclient.AuthorizationV1Interface
	}
	// Audiences are names of the gateway that no other service has, as in kubectl
	// create token --audience. A token must be for one of them. Required. The API
	// server's own audience would work, but then a token that is seen here could
	// be used there.
	Audiences []string
	// Opaque sends any token to the API server, whatever it looks like. If false,
	// only a JSON Web Token is sent that names one of Audiences and its expiry, as
	// the TokenRequest API issues them (kubectl create token). Other tokens (of a
	// Secret, of OIDC, of a static file) are valid for kube-apiserver only if one of
	// Audiences is its own (--api-audiences), or if its token webhook knows one.
	Opaque bool
	// ClusterOf returns the cluster that a client wants to reach. An error refuses
	// the client, with 403 if it is syscall.EACCES. If nil, it is the user name of
	// the credentials. A bearer token has no user name, so it needs this field.
	ClusterOf func(user authenticationv1.UserInfo, c gateway.Credentials) (string, error)
	// Remember is how long a client is let in again without a request, even if its
	// token was revoked or its right was removed meanwhile; at most until the token
	// expires. Zero means 10 seconds; if negative, there is a request each time.
	Remember time.Duration
	users    reviewQueue[reviewedUser]
	rights   reviewQueue[time.Time]

	// In tests.
	allow         func(ctx context.Context, user authenticationv1.UserInfo, cluster string) error
	maxRemembered int
}

// reviewedUser is the user that a token belongs to.
type reviewedUser struct {
	user authenticationv1.UserInfo
	ends time.Time // of the token; zero if unknown
}

const (
	defaultRemember      = 10 * time.Second // as kube-apiserver itself
	defaultMaxRemembered = 10_000           // tokens, rights, and refusals of each, as hashes: some 20 MiB
)

// Authenticate is for the field Authenticate of a Gateway. A client without a token
// for one of the Audiences gets [gateway.ErrCredentials]; one that may not reach the
// cluster, syscall.EACCES. If the API server can't be asked, or too many reviews
// wait, the error is a [gateway.Unavailable]. No error holds a token.
func (r *TokenReview) Authenticate(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
	if err := r.checkFields(); err != nil {
		return gateway.Identity{}, err
	}
	token := cmp.Or(c.Bearer, c.Password)
	if err := r.checkToken(token); err != nil {
		return gateway.Identity{}, err
	}
	q := &question[reviewedUser]{
		subject: sha256.Sum256([]byte(token)), maxRemembered: cmp.Or(r.maxRemembered, defaultMaxRemembered),
		ask:   func(ctx context.Context) (reviewedUser, error) { return r.reviewToken(ctx, token) },
		until: func(of reviewedUser) time.Time { return r.rememberUntil(of.ends) },
	}
	if c.Remote != nil {
		if source := turns.Source(c.Remote); source.IsValid() {
			q.source, q.conn = source.String(), c.Remote.String()
		}
	}
	known, err := r.users.findAnswer(ctx, q)
	if err != nil {
		return gateway.Identity{}, wrapError("token review", err)
	}
	cluster := c.User
	if r.ClusterOf != nil {
		cluster, err = r.ClusterOf(known.user, c)
	}
	if err != nil {
		return gateway.Identity{}, wrapError("the cluster of "+known.user.Username, err)
	}
	if err := r.checkAccess(ctx, q.subject, known, cluster); err != nil {
		return gateway.Identity{}, err
	}
	return gateway.Identity{Name: known.user.Username, Cluster: cluster}, nil
}

// checkToken refuses tokens that the API server need not be asked about.
func (r *TokenReview) checkToken(token string) error {
	if token == "" || len(token) > maxToken {
		return gateway.ErrCredentials
	}
	if r.Opaque {
		return nil
	}
	claims, err := parseJWT(token)
	if err == nil {
		err = claims.checkUsable(r.Audiences, time.Now())
	}
	if err != nil {
		return fmt.Errorf("tunnel/kubernetes: %w: %w", err, gateway.ErrCredentials)
	}
	return nil
}

// reviewToken asks the API server which user the token belongs to.
func (r *TokenReview) reviewToken(ctx context.Context, token string) (reviewedUser, error) {
	answer, err := r.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: slices.Clone(r.Audiences)},
	}, metav1.CreateOptions{})
	if err != nil {
		return reviewedUser{}, unavailableError{err}
	}
	status := answer.Status
	// An authenticator that knows no audiences returns none, which means the API
	// server's own.
	meant := slices.ContainsFunc(status.Audiences, func(a string) bool { return slices.Contains(r.Audiences, a) })
	switch {
	case !status.Authenticated:
		// Status.Error may quote anything.
		return reviewedUser{}, fmt.Errorf("the API server does not take the token: %w", gateway.ErrCredentials)
	case !meant:
		return reviewedUser{}, fmt.Errorf("%w: %w", errAudience, gateway.ErrCredentials)
	case status.User.Username == "":
		return reviewedUser{}, fmt.Errorf("the token is nobody's: %w", gateway.ErrCredentials)
	}
	claims, _ := parseJWT(token)
	return reviewedUser{status.User, claims.ends}, nil
}

// rememberUntil returns how long an answer about a token is remembered that expires
// then.
func (r *TokenReview) rememberUntil(ends time.Time) time.Time {
	until := time.Now().Add(cmp.Or(r.Remember, defaultRemember))
	if !ends.IsZero() && ends.Before(until) {
		return ends
	}
	return until
}

func (r *TokenReview) checkFields() error {
	switch {
	case r.Client == nil:
		return unavailableError{requiredField("token review", "Client")}
	case len(r.Audiences) == 0 || slices.Contains(r.Audiences, ""):
		return unavailableError{requiredField("token review", "Audiences")}
	}
	return nil
}

// isUnavailable reports whether the error says that it decides nothing.
func isUnavailable(err error) bool {
	var u gateway.Unavailable
	return errors.As(err, &u) && u.Unavailable()
}

// The right that a client needs. The API server does not serve this resource: with a
// verb and a subresource of its own, a right to read Clusters, or to read
// everything, is no right to connect.
const (
	accessGroup       = "cluster.x-k8s.io"
	accessResource    = "clusters"
	accessSubresource = "tunnel"
	accessVerb        = "connect"
)

// AccessRule returns a rule that lets its subjects connect to the clusters with
// these names, or to all clusters without names. It is for a Role in the namespace of the
// clusters, or for a ClusterRole if a cluster's name has no namespace.
func AccessRule(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups:     []string{accessGroup},
		Resources:     []string{accessResource + "/" + accessSubresource},
		ResourceNames: names,
		Verbs:         []string{accessVerb},
	}
}

// checkAccess decides whether the user may reach the cluster. Reviews of one user
// wait for each other, whatever address they come from.
func (r *TokenReview) checkAccess(ctx context.Context, token digest, of reviewedUser, cluster string) error {
	ask := r.allow
	if ask == nil {
		ask = r.reviewAccess
	}
	_, err := r.rights.findAnswer(ctx, &question[time.Time]{
		subject: sha256.Sum256(append(token[:], cluster...)), source: of.user.Username, maxRemembered: cmp.Or(r.maxRemembered, defaultMaxRemembered),
		ask: func(ctx context.Context) (time.Time, error) {
			err := ask(ctx, of.user, cluster)
			if err != nil && ctx.Err() != nil {
				err = unavailableError{err}
			}
			return of.ends, err
		},
		until: r.rememberUntil,
	})
	switch {
	case isUnavailable(err):
		return wrapError("access review", err)
	case err != nil:
		return fmt.Errorf("tunnel/kubernetes: %s may not reach %q: %w: %w", of.user.Username, cluster, syscall.EACCES, err)
	}
	return nil
}

// reviewAccess asks the API server.
func (r *TokenReview) reviewAccess(ctx context.Context, user authenticationv1.UserInfo, cluster string) error {
	namespace, name, ok := strings.Cut(cluster, "/")
	if !ok {
		namespace, name = "", cluster
	}
	if name == "" || ok && namespace == "" { // that would ask about all clusters
		return errors.New("the cluster's name is neither namespace/name nor name")
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := r.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: accessGroup, Resource: accessResource, Subresource: accessSubresource,
				Verb: accessVerb, Namespace: namespace, Name: name,
			},
		},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return unavailableError{err}
	case !answer.Status.Allowed || answer.Status.Denied:
		return fmt.Errorf("it has no right to %s on %s/%s in %s", accessVerb, accessResource, accessSubresource, accessGroup)
	}
	return nil
}
