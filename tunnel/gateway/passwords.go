package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"sync/atomic"
)

// Passwords are the accounts of those who may come in. They may be replaced
// while they are in use; the zero Passwords lets nobody in. Its methods are safe
// for concurrent use.
//
// A guess costs a client little: give out random passwords, of 128 bits or
// more. For those that are to end by themselves, see [Tickets].
type Passwords struct {
	accounts atomic.Pointer[map[string]account]
}

// Account is a password, and whose it is.
type Account struct {
	Password string // empty: nobody has this account
	Identity Identity
}

type account struct {
	sum      [sha256.Size]byte
	identity Identity
}

// Set replaces the accounts, by user name. Connections that are open stay so.
func (p *Passwords) Set(accounts map[string]Account) {
	all := make(map[string]account, len(accounts))
	for user, a := range accounts {
		if a.Password != "" {
			all[user] = account{sha256.Sum256([]byte(a.Password)), a.Identity}
		}
	}
	p.accounts.Store(&all)
}

// Authenticate is for the Gateway's field of that name. How long it takes says
// nothing about a password.
func (p *Passwords) Authenticate(_ context.Context, c Credentials) (Identity, error) {
	var a account
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
