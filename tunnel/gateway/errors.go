package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Phase is where a connection was when it failed.
type Phase string

const (
	PhaseHandshake    Phase = "handshake"    // TLS, what the client said first, or MaxPending
	PhaseLimit        Phase = "limit"        // MaxConns or MaxPerClient
	PhaseAuthenticate Phase = "authenticate" // Authenticate
	PhaseRoute        Phase = "route"        // Route
	PhaseDial         Phase = "dial"         // Dial
	PhaseRelay        Phase = "relay"        // bytes were flowing
)

// Error is what Hooks see of a connection that failed. It holds no secret.
type Error struct {
	// Request is what was asked for, as far as it is known: always its Door and
	// Credentials.Remote; Client, the rest of the Credentials and Cluster only
	// once the client was authenticated.
	Request Request
	Phase   Phase
	Err     error
}

// Error returns "gateway: connect: dial: cause".
func (e *Error) Error() string {
	who := ""
	if e.Request.Client.Name != "" {
		who = fmt.Sprintf(" %q", e.Request.Client.Name)
	}
	return fmt.Sprintf("gateway: %s%s: %s: %v", e.Request.Door, who, e.Phase, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// reason is what became of a request, in the terms that the doors have words
// for.
type reason int

const (
	reasonFailed      reason = iota // the target can't be had: 502, SOCKS5 1
	reasonForbidden                 // 403, SOCKS5 2
	reasonUnreachable               // no route: 502, SOCKS5 3 (network) or 4 (host)
	reasonNotFound                  // no such name: 502, SOCKS5 4
	reasonRefused                   // 502, SOCKS5 5
	reasonTimeout                   // 504, SOCKS5 6
	reasonUnavailable               // nothing leads there now: 503, SOCKS5 3
	reasonMalformed                 // 400, SOCKS5 1 or 8
)

// Unavailable is implemented by an error that means: try again later. Of Dial,
// there is no way to the cluster at the moment; of Authenticate, nobody can say
// who the client is. The answer is 503.
type Unavailable interface{ Unavailable() bool }

// reasonOf finds out what an error of Dial means.
func reasonOf(err error) reason {
	var (
		dns         *net.DNSError
		timeout     interface{ Timeout() bool }
		unavailable Unavailable
	)
	switch {
	// Before what its cause may be: one that asks elsewhere may be forbidden that.
	case errors.As(err, &unavailable) && unavailable.Unavailable():
		return reasonUnavailable
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return reasonForbidden
	case errors.Is(err, syscall.ECONNREFUSED):
		return reasonRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	case errors.As(err, &dns) && dns.IsNotFound:
		return reasonNotFound
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return reasonUnreachable
	}
	return reasonFailed
}
