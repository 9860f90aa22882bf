// Package field checks what the fields of a kubeconfig, and of what one is made
// of, may hold.
package field

import (
	"errors"
	"fmt"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/printable"
)

// Error is kubeconfig.FieldError.
type Error struct {
	// Field is the path of the field: "Endpoint.Host", "Route.ProxyURL".
	Field string
	// Err is what is wrong and what is expected.
	Err error
}

// Error is the field and what is wrong with it, at most 3 KiB of text that prints: names and
// errors of crypto/x509 repeat what somebody else wrote.
func (e *Error) Error() string {
	return "kubeconfig: " + printable.Text(e.Field, 2<<10) + ": " + printable.Text(fmt.Sprint(e.Err), 1<<10)
}

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
