package kubernetes

import "fmt"

// requiredField is the error for a field that is needed.
func requiredField(what, field string) error {
	return fmt.Errorf("tunnel/kubernetes: %s: field %s is required", what, field)
}

// wrapError says what the API server was asked for. The errors of the API server
// name objects and do not quote what is in them.
func wrapError(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tunnel/kubernetes: %s: %w", what, err)
}

// unavailableError is a gateway.Unavailable: the client's identity can't be verified
// now, and it may try again.
type unavailableError struct{ error }

func (unavailableError) Unavailable() bool { return true }

func (u unavailableError) Unwrap() error { return u.error }
