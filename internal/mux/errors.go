package mux

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
)

// Codes of a reset that the session itself sends. They are those of package
// tunnel's SPEC.md, where they cross the wire with others; those from CodeUser
// on are no session's.
const (
	CodeClosed   uint32 = 0 // the peer closed the stream and reads no more; yamux peers send it for any reset
	CodeTooMany  uint32 = 7 // the peer has as many streams open as it allows
	CodeProtocol uint32 = 9 // data came after its end
	CodeUser     uint32 = 16
)

var (
	// ErrGoAway is returned by [Session.Open] when the peer takes no new streams.
	ErrGoAway = errors.New("mux: the peer takes no new streams")

	// ErrSettled is returned by [Session.Open] after [Session.Settle].
	ErrSettled = errors.New("mux: the session has settled, to be ended")

	// ErrExhausted is returned by [Session.Open] when the session has opened
	// 2^31 streams, all that there can be.
	ErrExhausted = errors.New("mux: no stream ids are left")

	// ErrTooLong is returned by [Session.Open] when the first bytes are more
	// than [MaxFirst].
	ErrTooLong = errors.New("mux: the first bytes don't fit into a frame")

	// ErrSessionClosed is the error of a session that was closed here. It is a
	// net.ErrClosed.
	ErrSessionClosed = fmt.Errorf("mux: session closed: %w", net.ErrClosed)
)

// ResetError is the end of a stream that was aborted. To errors.Is it is a
// syscall.ECONNRESET, and if it was aborted here a net.ErrClosed as well.
type ResetError struct {
	Code   uint32
	Remote bool // the peer aborted it
}

func (e *ResetError) Error() string {
	by := "here"
	if e.Remote {
		by = "by the peer"
	}
	return "mux: stream reset " + by + ": " + codeText(e.Code)
}

func codeText(code uint32) string {
	switch code {
	case CodeClosed:
		return "closed"
	case CodeTooMany:
		return "too many streams"
	case CodeProtocol:
		return "data after its end"
	}
	return "code " + strconv.FormatUint(uint64(code), 10)
}

// Is makes it the reset that it would be on a connection of its own.
func (e *ResetError) Is(target error) bool {
	return target == syscall.ECONNRESET || !e.Remote && target == net.ErrClosed
}

// LostError is the end of a session, and of each of its streams, that ended
// because of its carrier or its peer, or by [Session.CloseWithError]. To errors.Is
// it is a syscall.ECONNRESET and what Err is, but never io.EOF, since what was
// received may be a part, nor net.ErrClosed or os.ErrDeadlineExceeded: whoever has
// the stream has not closed it, and its deadline has not passed.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "mux: session lost: " + e.Err.Error() }

// Is makes it the reset that it would be on a connection of its own, and its
// cause.
func (e *LostError) Is(target error) bool {
	switch target {
	case syscall.ECONNRESET:
		return true
	case io.EOF, net.ErrClosed, os.ErrDeadlineExceeded:
		return false
	}
	return errors.Is(e.Err, target)
}

// As finds the cause, unless that is the reset of another stream.
func (e *LostError) As(target any) bool {
	if _, ok := target.(**ResetError); ok {
		return false
	}
	return errors.As(e.Err, target)
}

// lost makes the carrier's error a session's.
func lost(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &LostError{err}
}

// ProtocolError is what a peer did that yamux forbids, or that it said of us.
// It is the cause of a [LostError].
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "mux: protocol error: " + e.Reason }

func protocolError(format string, args ...any) error {
	return &LostError{&ProtocolError{fmt.Sprintf(format, args...)}}
}

// The causes of a session's end whose peer was not heard of, or took nothing. To
// the streams they are no deadline: theirs have not passed.
var (
	errSilent  = fmt.Errorf("mux: nothing came from the peer: %w", syscall.ETIMEDOUT)
	errBlocked = fmt.Errorf("mux: the carrier took nothing: %w", syscall.ETIMEDOUT)
)
