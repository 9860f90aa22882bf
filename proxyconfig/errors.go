package proxyconfig

import "fmt"

// FieldError says which field can't be used and what is expected of it. It
// holds no secret: neither its text nor Err repeats what a field held.
//
// [Config.Validate] reports all fields at once: its error wraps one FieldError
// each (errors.Join), of which errors.As finds the first.
type FieldError struct {
	// Field is the path of the field: "HTTPProxy", "User.NoProxy".
	Field string
	// Err is what is wrong and what is expected.
	Err error
}

// Error is the field and what is wrong with it.
func (e *FieldError) Error() string { return "proxyconfig: " + e.Field + ": " + fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}
