package tunnel

import (
	"errors"
	"net"
	"time"
)

// Hooks are called for what a Server does. Each may be nil, and must return soon:
// the Server waits for it. None gets the address of a target, so that labels of
// metrics stay few.
type Hooks struct {
	// Connected is called when a session takes streams: dials from now on
	// can use it.
	Connected func(SessionInfo)
	// Disconnected is called when a session has ended; err is nil if the
	// agent ended it in order. Streams and byte counts are final.
	Disconnected func(s SessionInfo, err error)
	// Refused is called for each carrier, enrolment or renewal that is refused.
	// Err is an *[Error], remote the other end's address. It names a cluster only if a
	// token or a certificate that was verified does. [CodeHeld] is no
	// failure: an agent was looking for another replica. [CodeTooManyStreams]
	// means that the carrier made room for another one (see MaxPending). Strangers
	// can cause thousands in a second: count them, and log only a few.
	Refused func(remote net.Addr, err error)
	// Enrolled is called when an agent got its first certificate.
	Enrolled func(id Identity)
	// Renewed is called when an agent got another certificate, valid until
	// the time given.
	Renewed func(id Identity, until time.Time)
	// Dialed is called at the end of each DialContext with the time it took;
	// err is nil or the *[Error] that it returns, without Addr.
	Dialed func(cluster string, took time.Duration, err error)
	// Delivered is called for each payload that Payloads returned, with the
	// agent's answer, or with the error if no answer came.
	Delivered func(id Identity, name string, err error)
	// Forwarded is called for each dial that other replicas were asked for, at
	// its end and before Dialed. Took begins with the question which of them has
	// an agent.
	Forwarded func(cluster string, took time.Duration, err error)
	// PeerConnected is called when a session with another replica takes
	// dials, PeerDisconnected when it has ended; err is nil if in order.
	PeerConnected    func(name string)
	PeerDisconnected func(name string, err error)
	// PeerFailed is called when an attempt to connect to another replica has failed,
	// or was refused. Address is the one that Peers gives, without the password of a
	// URL. The next attempt follows after 10 seconds at most.
	PeerFailed func(address string, err error)
}

func callHook1[A any](hook func(A), a A) {
	if hook != nil {
		hook(a)
	}
}

func callHook2[A, B any](hook func(A, B), a A, b B) {
	if hook != nil {
		hook(a, b)
	}
}

func callHook3[A, B, C any](hook func(A, B, C), a A, b B, c C) {
	if hook != nil {
		hook(a, b, c)
	}
}

// withoutTarget returns the error without the target's address.
func withoutTarget(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		without := *e
		without.Addr = ""
		err = &without
	}
	return err
}
