package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
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

// Hooks see what a Gateway does. Each may be nil; each is called by the
// goroutine at work and must return soon.
//
// An access log is Ended and Failed: each connection, or HTTP/2 stream, that asked
// for something ends with one of them. HTTP/1 clients that show credentials only
// when they are asked for them are in Failed before.
type Hooks struct {
	// Dialed is called when Dial has returned, with the time it took.
	Dialed func(r Request, took time.Duration, err error)
	// Ended is called at the end of a connection that was relayed. The Request
	// says who it was (Client), from where (Credentials.Remote), and what was
	// reached (Cluster, Address).
	Ended func(r Request, e Ended)
	// Failed is called for each client that got no connection. Err is an
	// *[Error], whose Request says as much as is known. Strangers can have it
	// called thousands of times a second: sum up what has no Client before it is
	// logged.
	Failed func(err error)
}

// Ended is what became of a connection that was relayed.
type Ended struct {
	In, Out int64 // bytes from and to the client
	Took    time.Duration
	// Err is what ended it; nil if both sides ended in order.
	Err error
}

func (h *Hooks) dialed(r Request, took time.Duration, err error) {
	if h.Dialed != nil {
		h.Dialed(r, took, err)
	}
}

func (h *Hooks) ended(r Request, e Ended) {
	if h.Ended != nil {
		h.Ended(r, e)
	}
}

func (h *Hooks) failed(err error) {
	if h.Failed != nil {
		h.Failed(err)
	}
}
