package gateway

import (
	"context"
	"strings"
)

// FirstOf returns an Authenticate that asks several, in their order, until one
// knows the client. Those that need no network, such as [Tickets], go first. It is
// safe for concurrent use if they are.
//
//	an authenticator says                            then
//	an Identity                                      the client is in
//	syscall.EACCES: it knows the client              the client is refused (403); no other one is asked
//	another error, ErrCredentials say                the next one is asked
//	an Unavailable: it can't tell                    the next one is asked; if none of them knows the client,
//	                                                 the error is an Unavailable (503): this one might have
//	anything, and the context has ended              no other one is asked
//
// What the client showed does not matter: one without credentials is asked about, too,
// since an authenticator may go by its address. If nobody knows the client, the error
// wraps what each of them said, and is ErrCredentials if that is all. Nil ones are left
// out; without any, nobody is let in.
func FirstOf(authenticators ...func(context.Context, Credentials) (Identity, error)) func(context.Context, Credentials) (Identity, error) {
	return func(ctx context.Context, c Credentials) (Identity, error) {
		var said notKnown
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
			if err != ErrCredentials { // which says no more than that
				said = append(said, err)
			}
			if ctx.Err() != nil {
				break
			}
		}
		return Identity{}, said.cause()
	}
}

// notKnown is what several authenticators said of a client that none of them knows.
type notKnown []error

func (e notKnown) cause() error {
	switch len(e) {
	case 0:
		return ErrCredentials
	case 1:
		return e[0]
	}
	return e
}

func (e notKnown) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns what each of them said.
func (e notKnown) Unwrap() []error { return e }

// Unavailable reports whether one of them could not tell.
func (e notKnown) Unavailable() bool {
	for _, err := range e {
		if reasonOf(err) == reasonUnavailable {
			return true
		}
	}
	return false
}

var _ Unavailable = notKnown(nil)
