// Package field checks what the fields of a kubeconfig, and of what one is made
// of, may hold.
package field

import (
	"errors"
	"fmt"

	"github.com/causewayproject/causeway/dialer"
)

// Error is kubeconfig.FieldError.
type Error struct {
	// Field is the path of the field: "Endpoint.Host", "Route.ProxyURL".
	Field string
	// Err is what is wrong and what is expected.
	Err error
}

// Error is the field and what is wrong with it.
func (e *Error) Error() string { return "kubeconfig: " + e.Field + ": " + fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Wrap returns an *Error, nil if err is nil.
func Wrap(field string, err error) error {
	if err == nil {
		return nil
	}
	// The field says better than the dialer where this comes from.
	if de, ok := err.(*dialer.Error); ok {
		err = de.Err
	}
	return &Error{Field: field, Err: err}
}

// Errorf returns an *Error.
func Errorf(field, format string, args ...any) error {
	return &Error{Field: field, Err: fmt.Errorf(format, args...)}
}

// ErrRequired says that a field is not set.
var ErrRequired = errors.New("required")
