package kubernetes

import "fmt"

// required is the error for a field that is needed.
func required(what, field string) error {
	return fmt.Errorf("tunnel/kubernetes: %s: field %s is required", what, field)
}

// wrapped says what the API server was asked for. Its errors name objects, and
// quote nothing of what is in them.
func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tunnel/kubernetes: %s: %w", what, err)
}

// unavailable is an error for which nobody can say who a client is. It is a
// gateway.Unavailable: the client may try again.
type unavailable struct{ error }

func (unavailable) Unavailable() bool { return true }

func (u unavailable) Unwrap() error { return u.error }
