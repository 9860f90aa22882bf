package mux

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Codes of a reset that the session itself sends. SPEC.md of package tunnel has
// all codes that cross the wire. A session sends none from CodeUser on.
const (
	CodeClosed   uint32 = 0  // the stream was closed and reads no more; yamux peers send it for any reset
	CodeTooMany  uint32 = 7  // as many streams are open as Config.MaxStreams allows
	CodeProtocol uint32 = 9  // data came after its end
	CodeBudget   uint32 = 11 // it held much of the Budget, and nobody read
	CodeUser     uint32 = 16
)

var (
	// ErrGoAway is returned by [Session.Open] when the peer takes no new streams.
	ErrGoAway = errors.New("the other end takes no new streams")

	// ErrSettled is returned by [Session.Open] after [Session.Settle].
	ErrSettled = errors.New("the session opens no more streams, it is about to end")

	// ErrExhausted is returned by [Session.Open] when the session has used all its
	// 2^31 stream ids.
	ErrExhausted = errors.New("no stream ids are left")

	// ErrTooLong is returned by [Session.Open] for more than [MaxFirst] first bytes.
	ErrTooLong = errors.New("mux: the first bytes don't fit into a frame")

	// ErrSessionClosed is the error of a session after [Session.Close]. It wraps
	// net.ErrClosed.
	ErrSessionClosed = fmt.Errorf("the session was closed: %w", net.ErrClosed)
)

// ResetError is the error of a stream that was aborted. errors.Is finds
// syscall.ECONNRESET in it, and net.ErrClosed too if its owner aborted it here.
type ResetError struct {
	Code   uint32
	Remote bool // the peer aborted it
}

func (e *ResetError) Error() string {
	by := "here"
	if e.Remote {
		by = "by the other end"
	}
	return "the stream was reset " + by + ": " + cmp.Or(codeTexts[e.Code], fmt.Sprintf("code %d", e.Code))
}

var codeTexts = map[uint32]string{
	CodeClosed:   "closed",
	CodeTooMany:  "too many streams",
	CodeProtocol: "data after its end",
	CodeBudget:   "too much waits that nobody reads",
}

// Is reports whether target is the error that a TCP connection would return.
func (e *ResetError) Is(target error) bool {
	return target == syscall.ECONNRESET || !e.Remote && e.Code != CodeBudget && target == net.ErrClosed
}

// LostError is the error of a session that ended because of its carrier or its
// peer, or by [Session.CloseWithError], and of its open streams. errors.Is finds
// syscall.ECONNRESET in it, and what it finds in Err with three exceptions: not
// io.EOF, since a part of the data may be missing; not net.ErrClosed, since the
// stream's owner has not closed it; not os.ErrDeadlineExceeded, since the stream's
// deadline has not passed.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "the connection was lost: " + e.Err.Error() }

// Is reports whether target is ECONNRESET or in the cause, as the type says.
func (e *LostError) Is(target error) bool {
	switch target {
	case syscall.ECONNRESET:
		return true
	case io.EOF, net.ErrClosed, os.ErrDeadlineExceeded:
		return false
	}
	return errors.Is(e.Err, target)
}

// As finds the cause, but not a ResetError: that would be of another stream.
func (e *LostError) As(target any) bool {
	if _, ok := target.(**ResetError); ok {
		return false
	}
	return errors.As(e.Err, target)
}

// newLostError returns the session's error for an error of its carrier.
func newLostError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &LostError{err}
}

// ProtocolError says how the peer broke the protocol, or with which code it ended
// the session. It is the cause of a [LostError].
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "the other end broke the protocol: " + e.Reason }

func protocolError(format string, args ...any) error {
	return &LostError{&ProtocolError{fmt.Sprintf(format, args...)}}
}

// Causes of a LostError: the peer was silent for DeadAfter, or took nothing for
// writeTimeout. They wrap ETIMEDOUT and no deadline, since no stream's has passed.
var (
	errSilent  = fmt.Errorf("nothing came from the other end: %w", syscall.ETIMEDOUT)
	errBlocked = fmt.Errorf("the other end took nothing: %w", syscall.ETIMEDOUT)
)
