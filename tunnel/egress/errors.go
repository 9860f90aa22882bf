package egress

import (
	"errors"
	"fmt"
)

// FieldError says which field of a configuration can't be used, and why.
// [Parse] and [Configuration.Validate] report all of them at once: the error
// wraps one FieldError each (errors.Join), of which errors.As finds the first.
type FieldError struct {
	// Field is the path, as in the file:
	// "egressSelections[0].connection.transport.tcp.url".
	Field string
	// Err is what is wrong and what is expected.
	Err error
}

// Error is the field and what is wrong with it.
func (e *FieldError) Error() string { return "egress: " + e.Field + ": " + fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// fields collects errors.
type fields struct{ errs []error }

func (f *fields) add(field, format string, args ...any) {
	f.errs = append(f.errs, &FieldError{Field: field, Err: fmt.Errorf(format, args...)})
}

func (f *fields) err() error { return errors.Join(f.errs...) }

// ErrProtocol is the cause when a Dialer is wanted for a protocol that this
// package does not speak: GRPC.
var ErrProtocol = errors.New("egress: the protocol is not spoken")
