package kubernetes

// Remembered is how many tokens and rights are remembered.
func (r *TokenReview) Remembered() (users, rights int) {
	return len(r.users.entries), len(r.rights.entries)
}
