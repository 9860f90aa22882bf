package kubeconfig

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/causewayproject/causeway/dialer"
)

// FieldError says which field can't be used and what is expected of it. It
// holds no secret: neither its text nor Err repeats what a field held.
//
// [Spec.Build] reports all fields at once: the error that it returns wraps one
// FieldError each (errors.Join), of which errors.As finds the first.
type FieldError struct {
	// Field is the path of the field: "Endpoint.Host", "Route.ProxyURL".
	Field string
	// Err is what is wrong and what is expected.
	Err error
}

// Error is the field and what is wrong with it.
func (e *FieldError) Error() string { return "kubeconfig: " + e.Field + ": " + fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

func fieldError(field string, err error) error {
	if err == nil {
		return nil
	}
	// The field says better than the dialer where this comes from.
	if de, ok := err.(*dialer.Error); ok {
		err = de.Err
	}
	return &FieldError{Field: field, Err: err}
}

func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}

var errRequired = errors.New("required")

// closedError is net.ErrClosed in other words. client-go takes the words "use
// of closed network connection" for a passing fault and repeats a GET ten
// times, a second apart.
type closedError struct{}

var errClosed error = closedError{}

func (closedError) Error() string { return "kubeconfig: the client is closed" }

func (closedError) Is(target error) bool { return target == net.ErrClosed }

// replacedError is the end of what still used an old kubeconfig. client-go
// repeats a GET and resumes a watch after a reset, which is what this was.
type replacedError struct{}

var errReplaced error = replacedError{}

func (replacedError) Error() string {
	return "kubeconfig: cut, since another kubeconfig has replaced the one in use: connection reset by peer"
}

func (replacedError) Unwrap() error { return syscall.ECONNRESET }
