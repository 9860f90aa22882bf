package kubernetes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a client needs a right to. It is no resource that the API server
// serves; a verb and a subresource of our own keep rights to read Clusters, or
// to read everything, from being rights to connect.
const (
	accessGroup       = "cluster.x-k8s.io"
	accessResource    = "clusters"
	accessSubresource = "tunnel"
	accessVerb        = "connect"
)

// AccessRule is the rule of a Role, in the namespace of a cluster that is
// called namespace/name, or else of a ClusterRole, that lets its subjects
// connect to the clusters of these names; to all if there are none.
func AccessRule(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups:     []string{accessGroup},
		Resources:     []string{accessResource + "/" + accessSubresource},
		ResourceNames: names,
		Verbs:         []string{accessVerb},
	}
}

// allow decides whether the user may reach the cluster. Those that wait for an answer
// wait for their own user's, from wherever they come.
func (r *TokenReview) allow(ctx context.Context, token digest, of reviewed, cluster string) error {
	ask := r.Allow
	if ask == nil {
		ask = r.reviewAccess
	}
	_, err := r.rights.answer(ctx, &question[time.Time]{
		about: sha256.Sum256(append(token[:], cluster...)), source: of.user.Username, most: r.maxRemembered(),
		ask: func(ctx context.Context) (time.Time, error) {
			err := ask(ctx, of.user, cluster)
			if err != nil && ctx.Err() != nil {
				err = unavailable{err}
			}
			return of.ends, err
		},
		until: r.until,
	})
	switch {
	case isUnavailable(err):
		return wrapped("access review", err)
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
	if name == "" || ok && namespace == "" { // which would be a question about all of them
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
		return unavailable{err}
	case !answer.Status.Allowed || answer.Status.Denied:
		return fmt.Errorf("it has no right to %s on %s/%s in %s", accessVerb, accessResource, accessSubresource, accessGroup)
	}
	return nil
}
