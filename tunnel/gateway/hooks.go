package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
)

// Phase is where a connection was when it failed.
type Phase string

const (
	PhaseHandshake    Phase = "handshake"    // TLS, the client's first message, or MaxPending
	PhaseLimit        Phase = "limit"        // MaxConns, MaxPerClient or Dial returned a [Limited]
	PhaseAuthenticate Phase = "authenticate" // Authenticate
	PhaseRoute        Phase = "route"        // Route
	PhaseDial         Phase = "dial"         // Dial
	PhaseRelay        Phase = "relay"        // bytes were flowing
)

// Error is why a connection failed. It holds no secret.
type Error struct {
	// Request is what was asked for, as far as it is known: its Door and
	// Credentials.Remote always; Client, the other Credentials and Cluster only if
	// the client was authenticated.
	Request Request
	Phase   Phase
	Err     error
}

// Error returns a line like `gateway: connect "name": dial: cause`.
func (e *Error) Error() string {
	who := ""
	if e.Request.Client.Name != "" {
		who = fmt.Sprintf(" %q", e.Request.Client.Name)
	}
	return fmt.Sprintf("gateway: %s%s: %s: %s", e.Request.Door, who, e.Phase, printable.Text(fmt.Sprint(e.Err), 1<<10))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// reason is what an error means for the protocols of the doors.
type reason struct {
	status int    // of HTTP
	kind   string // of Proxy-Status (RFC 9209, 2.3)
	socks  byte   // the reply of SOCKS5 (RFC 1928, 6)
}

var (
	reasonFailed             = &reason{502, "destination_unavailable", replyFailed} // any other error
	reasonForbidden          = &reason{403, "destination_ip_prohibited", replyForbidden}
	reasonNetworkUnreachable = &reason{502, "destination_ip_unroutable", replyNetworkUnreachable}
	reasonHostUnreachable    = &reason{502, "destination_ip_unroutable", replyHostUnreachable}
	reasonNotFound           = &reason{502, "dns_error", replyHostUnreachable} // no such name
	reasonRefused            = &reason{502, "connection_refused", replyRefused}
	reasonTimeout            = &reason{504, "connection_timeout", replyExpired}
	reasonCut                = &reason{502, "connection_terminated", replyFailed}
	reasonUnavailable        = &reason{503, "destination_unavailable", replyNetworkUnreachable} // try again later
	reasonLimited            = &reason{429, "connection_limit_reached", replyFailed}
)

// Unavailable is implemented by an error that means "try again later": Dial has no
// way to the cluster at the moment, or Authenticate can't identify the client now.
// The answer is 503.
type Unavailable interface{ Unavailable() bool }

// Limited is implemented by an error that means "too much": the client may have no
// connection for so long, or nobody knows how long if that is zero. The answer is 429,
// or 503 if the error is an [Unavailable], with Retry-After.
type Limited interface{ RetryAfter() time.Duration }

// reasonOf classifies an error.
func reasonOf(err error) *reason {
	var (
		dns         *net.DNSError
		timeout     interface{ Timeout() bool }
		unavailable Unavailable
		limited     Limited
	)
	switch {
	// First: an Unavailable may wrap a cause that is another reason, such as EACCES
	// from a service that was asked.
	case errors.As(err, &unavailable) && unavailable.Unavailable():
		return reasonUnavailable
	case errors.As(err, &limited):
		return reasonLimited
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return reasonForbidden
	case errors.Is(err, syscall.ECONNREFUSED):
		return reasonRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	case errors.As(err, &dns) && dns.IsNotFound:
		return reasonNotFound
	case errors.Is(err, syscall.ECONNRESET):
		return reasonCut
	case errors.Is(err, syscall.ENETUNREACH):
		return reasonNetworkUnreachable
	case errors.Is(err, syscall.EHOSTUNREACH):
		return reasonHostUnreachable
	}
	return reasonFailed
}

// Hooks are called by a Gateway. Each may be nil. They are called by the goroutine of
// a connection and must return soon.
//
// An access log needs Ended and Failed: each connection, or HTTP/2 stream, that asked
// for something ends with one of them. An HTTP/1 client that shows credentials only
// after a 407 causes a call of Failed before.
type Hooks struct {
	// Dialed is called when Dial has returned, with its duration.
	Dialed func(r Request, took time.Duration, err error)
	// Ended is called when a connection that was relayed has ended. The Request has
	// the client (Client), its address (Credentials.Remote), and its target
	// (Cluster, Address).
	Ended func(r Request, e Ended)
	// Failed is called for each client that got no connection. Err is an *[Error].
	// Strangers can cause thousands of calls a second: before logging, sum up those
	// without a Client.
	Failed func(err error)
}

// Ended is the result of a connection that was relayed.
type Ended struct {
	In, Out int64 // bytes from and to the client
	Took    time.Duration
	// Target is the remote address of the connection that Dial returned; nil if it has
	// none. A tunnel's tells which agent dialed.
	Target net.Addr
	// Err is what ended it; nil if both sides ended in order.
	Err error
}
