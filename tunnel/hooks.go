package tunnel

import (
	"errors"
	"net"
	"time"
)

// Hooks see what a Server does. Each may be nil; each is called by the
// goroutine at work and must return soon. None is given a target's address, so
// what they count stays bounded.
type Hooks struct {
	// Connected is called when a session takes streams: a dial that begins
	// afterwards finds it.
	Connected func(SessionInfo)
	// Disconnected is called when a session has ended; err is nil if the
	// agent ended it in order. Streams and byte counts are final.
	Disconnected func(s SessionInfo, err error)
	// Refused is called for each carrier, enrolment or renewal that is turned
	// away. Err is an *[Error], remote where it came from. One of [CodeHeld] is
	// no failure: an agent was looking for another replica. One of
	// [CodeTooManyStreams] made room for another (see MaxPending). Strangers can
	// cause thousands in a second: count them, and log a few.
	Refused func(remote net.Addr, err error)
	// Enrolled is called when an agent got its first certificate.
	Enrolled func(id Identity)
	// Renewed is called when an agent got another certificate, valid until
	// the time given.
	Renewed func(id Identity, until time.Time)
	// Dialed is called at the end of each DialContext with the time it took;
	// err is nil or the *[Error] that it returns, without Addr.
	Dialed func(cluster string, took time.Duration, err error)
	// Delivered is called when an agent said what became of a payload that
	// Payloads returned, or could not be asked.
	Delivered func(id Identity, name string, err error)
	// Forwarded is called for each dial that was left to the other replicas,
	// when one has answered or none has an agent; Dialed is, too. Took counts
	// from the question which of them has one.
	Forwarded func(cluster string, took time.Duration, err error)
	// PeerConnected is called when a session with another replica takes
	// dials, PeerDisconnected when it has ended; err is nil if in order.
	PeerConnected    func(name string)
	PeerDisconnected func(name string, err error)
}

func (h *Hooks) connected(s SessionInfo) {
	if h.Connected != nil {
		h.Connected(s)
	}
}

func (h *Hooks) disconnected(s SessionInfo, err error) {
	if h.Disconnected != nil {
		h.Disconnected(s, err)
	}
}

func (h *Hooks) refused(remote net.Addr, err error) {
	if h.Refused != nil {
		h.Refused(remote, err)
	}
}

func (h *Hooks) enrolled(id Identity) {
	if h.Enrolled != nil {
		h.Enrolled(id)
	}
}

func (h *Hooks) renewed(id Identity, until time.Time) {
	if h.Renewed != nil {
		h.Renewed(id, until)
	}
}

func (h *Hooks) dialed(cluster string, took time.Duration, err error) {
	if h.Dialed != nil {
		h.Dialed(cluster, took, anonymous(err))
	}
}

func (h *Hooks) forwarded(cluster string, took time.Duration, err error) {
	if h.Forwarded != nil {
		h.Forwarded(cluster, took, anonymous(err))
	}
}

// anonymous returns the error without the target's address.
func anonymous(err error) error {
	var e *Error
	if errors.As(err, &e) {
		without := *e
		without.Addr = ""
		err = &without
	}
	return err
}

func (h *Hooks) peerConnected(name string) {
	if h.PeerConnected != nil {
		h.PeerConnected(name)
	}
}

func (h *Hooks) peerDisconnected(name string, err error) {
	if h.PeerDisconnected != nil {
		h.PeerDisconnected(name, err)
	}
}

func (h *Hooks) delivered(id Identity, name string, err error) {
	if h.Delivered != nil {
		h.Delivered(id, name, err)
	}
}
