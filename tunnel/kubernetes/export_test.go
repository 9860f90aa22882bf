package kubernetes

import "time"

// Remembered is how many tokens and rights are remembered.
func (r *TokenReview) Remembered() (users, rights int) {
	return len(r.users.yes.Keys()), len(r.rights.yes.Keys())
}

// ParseJWT reports whether the token is one, and what it says of itself.
func ParseJWT(token string) (ok bool, audiences []string, ends time.Time) {
	c, err := parseJWT(token)
	return err == nil, c.audiences, c.ends
}
