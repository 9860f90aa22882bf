package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"sync/atomic"
)

// Passwords are the accounts of those who may come in. They may be replaced
// while they are in use; the zero Passwords lets nobody in. Its methods are safe
// for concurrent use.
//
// A guess costs a client little: give out random passwords, of 128 bits or
// more. For those that are to end by themselves, see [Tickets].
type Passwords struct {
	accounts atomic.Pointer[map[string]hashedAccount]
}

// Account is a password, and whose it is.
type Account struct {
	Password string // empty: nobody has this account
	Identity Identity
}

type hashedAccount struct {
	sum      [sha256.Size]byte
	identity Identity
}

// Set replaces the accounts, by user name. Connections that are open stay so.
func (p *Passwords) Set(accounts map[string]Account) {
	all := make(map[string]hashedAccount, len(accounts))
	for user, a := range accounts {
		if a.Password != "" {
			all[user] = hashedAccount{sha256.Sum256([]byte(a.Password)), a.Identity}
		}
	}
	p.accounts.Store(&all)
}

// Authenticate is for the Gateway's field of that name. How long it takes says
// nothing about a password.
func (p *Passwords) Authenticate(_ context.Context, c Credentials) (Identity, error) {
	var a hashedAccount
	known := false
	if all := p.accounts.Load(); all != nil {
		a, known = (*all)[c.User]
	}
	sum := sha256.Sum256([]byte(c.Password))
	if subtle.ConstantTimeCompare(sum[:], a.sum[:]) != 1 || !known {
		return Identity{}, ErrCredentials
	}
	return a.identity, nil
}

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

// notKnownErrors is what several authenticators said of a client that none of them knows.
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

// Unwrap returns what each of them said.
func (e notKnownErrors) Unwrap() []error { return e }

// Unavailable reports whether one of them could not tell.
func (e notKnownErrors) Unavailable() bool {
	for _, err := range e {
		if reasonOf(err) == reasonUnavailable {
			return true
		}
	}
	return false
}

var _ Unavailable = notKnownErrors(nil)
