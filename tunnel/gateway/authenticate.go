package gateway

import (
	"context"
	"slices"
	"strings"
)

// FirstOf returns an Authenticate that calls several in their order until one knows
// the client. Those that need no network, such as [Tickets], should come first. It is
// safe for concurrent use if they are.
//
//	an authenticator returns               then
//	an Identity                            the client is authenticated
//	syscall.EACCES: it knows the client    the client is refused (403)
//	another error, such as ErrCredentials  the next one is called
//	an Unavailable: it can't tell          the next one is called; if none knows the client, the error is
//	                                       an Unavailable (503), because this one might have known it
//	anything after the context has ended   no other one is called
//
// They are called for clients without credentials, too, since one may decide by the
// client's address. If none knows the client, the error wraps all their errors, and is
// ErrCredentials if there is no other. Nil ones are skipped; without any, all clients
// are refused.
func FirstOf(authenticators ...func(context.Context, Credentials) (Identity, error)) func(context.Context, Credentials) (Identity, error) {
	return func(ctx context.Context, c Credentials) (Identity, error) {
		var said notKnownErrors
		for _, authenticate := range authenticators {
			if authenticate == nil {
				continue
			}
			id, err := authenticate(ctx, c)
			if err == nil {
				return id, nil
			}
			if reasonOf(err) == reasonForbidden {
				return Identity{}, err
			}
			if err != ErrCredentials { // which adds nothing
				said = append(said, err)
			}
			if ctx.Err() != nil {
				break
			}
		}
		return Identity{}, said.cause()
	}
}

// notKnownErrors are the errors of several authenticators that do not know a client.
type notKnownErrors []error

func (e notKnownErrors) cause() error {
	switch len(e) {
	case 0:
		return ErrCredentials
	case 1:
		return e[0]
	}
	return e
}

func (e notKnownErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e notKnownErrors) Unwrap() []error { return e }

// Unavailable reports whether one of them could not tell.
func (e notKnownErrors) Unavailable() bool {
	return slices.ContainsFunc(e, func(err error) bool { return reasonOf(err) == reasonUnavailable })
}

var _ Unavailable = notKnownErrors(nil)
