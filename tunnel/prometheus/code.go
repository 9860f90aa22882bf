package prometheus

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"slices"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	codeOK    = "ok"    // there was no error
	codeOther = "other" // an error, or a code, without a word of its own
)

// codeOf returns the label of an error: the word for its tunnel.Code, or for an error of
// the standard library.
func codeOf(err error) string {
	var e *tunnel.Error
	switch {
	case err == nil:
		return codeOK
	case errors.As(err, &e):
		return cmp.Or(e.Code.Name(), codeOther)
	case errors.Is(err, context.Canceled):
		return tunnel.CodeCanceled.Name()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return tunnel.CodeTimeout.Name()
	case errors.Is(err, net.ErrClosed):
		return tunnel.CodeClosed.Name()
	}
	return codeOther
}

// endOf is codeOf for the end of a session: an error without a code is the loss of the
// carrier.
func endOf(err error) string {
	if name := codeOf(err); name != codeOther {
		return name
	}
	return tunnel.CodeLost.Name()
}

// opOf returns the operation that failed, one of the few that the tunnel has.
func opOf(err error) string {
	e, ok := errors.AsType[*tunnel.Error](err)
	if !ok {
		return codeOther
	}
	return oneOf(e.Op, "dial", "connect", "enroll", "renew", "push", "serve", "config")
}

// oneOf returns the label of a value, which stays one of a few whatever the value is.
func oneOf[T ~string](value T, known ...T) string {
	if slices.Contains(known, value) {
		return string(value)
	}
	return codeOther
}
