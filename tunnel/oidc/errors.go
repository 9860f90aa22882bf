package oidc

import (
	"errors"

	"github.com/causewayproject/causeway/tunnel"
)

// The reasons why [Issuers] refuses a token, for errors.Is. None of their texts holds
// anything of the token.
var (
	// ErrMalformed: it is not a token of a form that is allowed.
	ErrMalformed = errors.New("oidc: not a ServiceAccount token of an allowed form")
	// ErrLegacy: it has no end or no audience, as the tokens in Secrets of older
	// versions of Kubernetes.
	ErrLegacy = errors.New("oidc: the token has no end or no audience: it is a legacy token of a Secret; use a projected volume")
	// ErrLife: it lives for more than an hour.
	ErrLife = errors.New("oidc: the token lives for more than an hour: set expirationSeconds of the projected volume to 600")
	// ErrNotBound: it is not bound to a pod.
	ErrNotBound = errors.New("oidc: the token is not bound to a pod: use a projected volume")
	// ErrExpired: it has ended.
	ErrExpired = errors.New("oidc: the token has expired")
	// ErrNotYetValid: it begins in the future.
	ErrNotYetValid = errors.New("oidc: the token is not valid yet: do the clocks differ?")
	// ErrNoRegistration: the cluster that the agent names is not registered, or the
	// agent names none and not exactly one registered cluster has the token's issuer.
	ErrNoRegistration = errors.New("oidc: the cluster is not registered; if the agent names none, its issuer is not that of exactly one cluster")
	// ErrIssuer: it is of another issuer than the cluster's.
	ErrIssuer = errors.New("oidc: the token is of another issuer than the cluster's")
	// ErrAudience: it is for another audience, or for others as well.
	ErrAudience = errors.New("oidc: the token is for another audience, or for more than one")
	// ErrSubject: it is of a ServiceAccount that may not join.
	ErrSubject = errors.New("oidc: the token is of another ServiceAccount than may join")
	// ErrUnknownKey: the cluster has no key of the token's name.
	ErrUnknownKey = errors.New("oidc: the cluster has no key of the name that the token says")
	// ErrSignature: none of the cluster's keys has signed it.
	ErrSignature = errors.New("oidc: the token was not signed by a key of the cluster")
	// ErrUsed: another key has enrolled with it.
	ErrUsed = errors.New("oidc: another agent has joined with the token")
	// ErrUnavailable: the issuer's keys or the Store can't be had now.
	ErrUnavailable = errors.New("oidc: the token can't be checked now")
)

// codes are what an agent gets for an error that it is told; [tunnel.CodeTokenUnknown] for
// the others. After each of them it tries again, with the token that there is by then.
var codes = []struct {
	err  error
	code tunnel.Code
}{
	{ErrExpired, tunnel.CodeTokenExpired},
	{ErrUsed, tunnel.CodeTokenUsed},
	{ErrUnavailable, tunnel.CodeInternal}, // the agent gets no cause
}

// refusal returns an error that the Server tells the agent.
func refusal(err error) error {
	e := &tunnel.Error{Op: "enroll", Code: tunnel.CodeTokenUnknown, Err: err}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			e.Code = c.code
			break
		}
	}
	return e
}
