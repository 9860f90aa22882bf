package kubernetes

import (
	"fmt"
	"slices"
)

// checkFields returns an error for the first field that is not set. fields are names, each
// with its value.
func checkFields(what string, client any, fields ...string) error {
	if client == nil {
		return requiredField(what, "Client")
	}
	for pair := range slices.Chunk(fields, 2) {
		if pair[1] == "" {
			return requiredField(what, pair[0])
		}
	}
	return nil
}

// reportError calls the field Error of a store or a watch, which may be nil.
func reportError(report func(error), err error) {
	if report != nil && err != nil {
		report(err)
	}
}

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
