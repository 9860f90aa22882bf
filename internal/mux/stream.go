package mux

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Stream is a connection within a session. Its methods are safe for concurrent
// use. Errors are *net.OpError around a [*ResetError], a [*LostError],
// net.ErrClosed after Close, os.ErrDeadlineExceeded, or syscall.EPIPE for a
// write after CloseWrite.
type Stream struct {
	s  *Session
	id uint32

	reading, writing sync.Mutex // one Read and one Write at a time

	// The fields below are guarded by the session's mu.
	links         [lists]link
	local, remote net.Addr
	readable      sync.Cond // something came, or an end
	writable      sync.Cond // window, room or a place in frames, or an end
	readLimit     deadline
	writeLimit    deadline
	window        windows

	first, last *buffer // what was received
	inUse       bool    // first is being read without the lock
	sink        *sink   // of a DeliverTo that waits; nil: none
	frames      [2]*buffer
	nframes     int

	peers     bool // the peer opened it
	accepted  bool // it counts among the session's accepted
	gone      bool // both directions have ended
	synWanted bool // the opening is to be sent
	ackWanted bool // the answer to it is
	ended     bool // CloseWrite or Close was called
	closed    bool // Close or Reset was called
	finSent   bool
	finCame   bool
	rstWanted bool
	reset     *ResetError // by the peer, or here

	afterReadable func()                        // nil: none
	afterReset    func(code uint32, ended bool) // nil: none
}

var (
	_ net.Conn      = (*Stream)(nil)
	_ io.ReaderFrom = (*Stream)(nil)
	_ io.WriterTo   = (*Stream)(nil)
)

func newStream(s *Session, id uint32) *Stream {
	st := &Stream{s: s, id: id}
	st.readable.L = &s.mu
	st.writable.L = &s.mu
	st.window = windows{send: initialWindow, receive: initialWindow, size: initialWindow}
	return st
}

// CloseWrite ends what the peer reads, after all that was written. Reads go on.
func (st *Stream) CloseWrite() error {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.closed {
		return st.opError("close", net.ErrClosed)
	}
	if !st.ended {
		st.ended = true
		st.writable.Broadcast()
		s.readyLocked(st, false)
	}
	return nil
}

// Close ends the stream and returns at once. What was written is still sent,
// and the peer reads it and then io.EOF; what it writes from then on fails.
func (st *Stream) Close() error {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letGoLocked(st)
	if st.closed {
		return st.opError("close", net.ErrClosed)
	}
	st.endLocked()
	s.readyLocked(st, false)
	return nil
}

// Reset aborts the stream and returns at once. What was written and not sent
// yet is lost, and the peer gets a [ResetError] with the code after what it
// has received. Resetting a stream that Close ended gives up what is not sent.
func (st *Stream) Reset(code uint32) error {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.s.letGoLocked(st)
	st.resetLocked(code)
	return nil
}

func (st *Stream) resetLocked(code uint32) {
	if st.reset == nil {
		st.reset = &ResetError{Code: code}
	}
	st.endLocked()
	if st.gone {
		return
	}
	st.s.dropFramesLocked(st)
	if st.synWanted {
		st.s.forgetLocked(st) // the peer never heard of it
		return
	}
	st.rstWanted = true
	st.s.controlLocked(st)
}

// endLocked lets nothing be read or written any more.
func (st *Stream) endLocked() {
	st.ended, st.closed = true, true
	st.afterReset = nil
	st.readLimit.stop()
	st.writeLimit.stop()
	st.wakeReaderLocked()
	st.writable.Broadcast()
	st.s.dropReceivedLocked(st)
	st.s.releaseLocked(st)
}

// forgetLocked ends st for the session: both directions have ended. What was
// received can still be read.
func (s *Session) forgetLocked(st *Stream) {
	if st.gone {
		return
	}
	st.gone = true
	delete(s.streams, st.id)
	s.ends.Broadcast()
	s.dropFramesLocked(st)
	s.control.remove(st)
	s.acks.remove(st)
	s.releaseLocked(st)
	if st.synWanted {
		st.synWanted = false
		s.unsent--
		s.opens.Signal()
	}
	if st.peers && !st.links[listAccept].in {
		s.incoming--
	}
	st.wakeReaderLocked()
	st.writable.Broadcast()
}

// finishLocked forgets st if both directions have ended.
func (s *Session) finishLocked(st *Stream) {
	if st.finCame && st.finSent {
		s.forgetLocked(st)
	}
}

// readError is what a Read that finds no data returns; nil: it waits.
func (st *Stream) readErrorLocked() error {
	switch {
	case st.finCame:
		return io.EOF
	case st.reset != nil:
		return st.reset
	case st.gone:
		return st.s.err
	}
	return nil
}

// writeErrorLocked is why nothing can be written.
func (st *Stream) writeErrorLocked() error {
	switch {
	case st.closed:
		return st.closedErrorLocked()
	case st.writeLimit.passed:
		return os.ErrDeadlineExceeded
	case st.reset != nil:
		return st.reset
	case st.s.err != nil:
		return st.s.err
	case st.ended:
		return syscall.EPIPE
	}
	return nil
}

func (st *Stream) closedErrorLocked() error {
	if st.reset != nil && !st.reset.Remote {
		return st.reset
	}
	return net.ErrClosed
}

func (st *Stream) opError(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: "mux", Source: st.local, Addr: st.remote, Err: err}
}

// SetAddrs sets what LocalAddr and RemoteAddr return; before, it is what the
// carrier's return.
func (st *Stream) SetAddrs(local, remote net.Addr) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.local, st.remote = local, remote
}

// LocalAddr returns the address that SetAddrs set, or the carrier's.
func (st *Stream) LocalAddr() net.Addr {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if st.local == nil {
		return st.s.carrier.LocalAddr()
	}
	return st.local
}

// RemoteAddr returns the address that SetAddrs set, or the carrier's.
func (st *Stream) RemoteAddr() net.Addr {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if st.remote == nil {
		return st.s.carrier.RemoteAddr()
	}
	return st.remote
}

// SetDeadline sets both deadlines.
func (st *Stream) SetDeadline(t time.Time) error {
	return st.setDeadlines(t, true, true)
}

// SetReadDeadline bounds Read and WriteTo, those that wait included.
func (st *Stream) SetReadDeadline(t time.Time) error {
	return st.setDeadlines(t, true, false)
}

// SetWriteDeadline bounds Write and ReadFrom, those that wait included. A
// write that it ends has sent nothing by halves: the bytes that it returned
// are on their way, the others are not.
func (st *Stream) SetWriteDeadline(t time.Time) error {
	return st.setDeadlines(t, false, true)
}

func (st *Stream) setDeadlines(t time.Time, read, write bool) error {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if st.closed {
		return st.opError("set", net.ErrClosed)
	}
	if read {
		st.readLimit.set(t, &st.readable)
	}
	if write {
		st.writeLimit.set(t, &st.writable)
	}
	return nil
}
