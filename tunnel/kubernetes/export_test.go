package kubernetes

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Remembered is how many tokens and rights are remembered.
func (r *TokenReview) Remembered() (users, rights int) {
	return len(r.users.yes.Keys()), len(r.rights.yes.Keys())
}

// ParseJWT reports whether the token is one, and what it says of itself.
func ParseJWT(token string) (ok bool, audiences []string, ends time.Time) {
	c, err := parseJWT(token)
	return err == nil, c.audiences, c.ends
}

// SetAllow replaces the access review.
func (r *TokenReview) SetAllow(allow func(ctx context.Context, user authenticationv1.UserInfo, cluster string) error) {
	r.allow = allow
}

// SetMissingTime says how long a Service may have no slice, until the function is called.
func SetMissingTime(d time.Duration) (reset func()) {
	was := missingTime
	missingTime = d
	return func() { missingTime = was }
}

// SetMaxRemembered bounds what is remembered.
func (r *TokenReview) SetMaxRemembered(n int) { r.maxRemembered = n }
