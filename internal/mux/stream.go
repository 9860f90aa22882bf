package mux

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Stream is a connection within a session. Its methods are safe for concurrent
// use. Errors are a *net.OpError with one of these causes: a [*ResetError], a
// [*LostError], net.ErrClosed after Close, os.ErrDeadlineExceeded, or syscall.EPIPE
// for a write after CloseWrite.
//
// A stream ends in these steps. FIN ends one direction. When both sides have sent
// FIN, or one has sent RST, the session removes the stream; what was received can
// still be read. Reset sends RST. Close sends FIN and RST together, unless the peer
// has sent its FIN: then FIN is enough.
type Stream struct {
	session *Session
	id      uint32

	readMu, writeMu sync.Mutex   // admit one Read and one Write at a time
	kept, keptSince atomic.Int64 // bytes by Keep, or of the frame that ReadFrom has; an instant

	// The fields below are guarded by the session's mu.
	links         [listCount]listLink
	local, remote net.Addr
	readable      sync.Cond // Read may go on, or has to return an error
	writable      sync.Cond // Write may find window, queue or frames free, or an error
	readLimit     deadline
	writeLimit    deadline
	window        flowControl
	share         *share

	first, last *buffer       // what was received
	sink        writeLimiter  // to which first is being written meanwhile; nil: none, or it has no deadline
	direct      *directWriter // of a DeliverTo that waits; nil: none
	frames      [2]*buffer

	nframes      uint8 // of frames
	inUse        bool  // first is being read without the lock
	openedByPeer bool
	handedOver   bool // it counts in the session's handedOver
	removed      bool // both directions have ended, the session doesn't know it any more
	synWanted    bool // SYN is to be sent
	unacked      bool // it counts in the session's unacked
	ackWanted    bool // ACK is to be sent
	writeClosed  bool // CloseWrite, Close or Reset was called
	closed       bool // Close or Reset was called
	finSent      bool
	finReceived  bool
	rstWanted    bool
	reset        *ResetError // by the peer, or here

	afterReadable func()                        // nil: none
	afterReset    func(code uint32, ended bool) // nil: none
}

var (
	_ net.Conn      = (*Stream)(nil)
	_ io.ReaderFrom = (*Stream)(nil)
	_ io.WriterTo   = (*Stream)(nil)
)

// newStreamLocked returns a stream that the session knows by its id from now on.
func newStreamLocked(s *Session, id uint32) *Stream {
	st := &Stream{session: s, id: id, share: &s.own}
	st.share.streams++
	st.readable.L = &s.mu
	st.writable.L = &s.mu
	st.window = flowControl{send: initialWindow, receive: initialWindow, size: initialWindow}
	s.streams[id] = st
	return st
}

// CloseWrite ends what the peer reads, after all that was written. Reads still
// work.
func (st *Stream) CloseWrite() error {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.closed {
		return st.opError("close", net.ErrClosed)
	}
	if !st.writeClosed {
		st.writeClosed = true
		st.writable.Broadcast()
		s.queueDataLocked(st, false)
	}
	return nil
}

// Close ends the stream and returns at once. Written bytes are still sent. The
// peer reads them and then io.EOF, and its writes fail.
func (st *Stream) Close() error {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseHandedOverLocked(st)
	if st.closed {
		return st.opError("close", net.ErrClosed)
	}
	st.closeBothLocked()
	s.queueDataLocked(st, false)
	return nil
}

// CloseSent is Close, and then waits until the carrier takes what was written, and the end; or until the
// stream or the session has ended.
func (st *Stream) CloseSent() {
	st.Close()
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	for !st.finSent && !st.removed && st.session.err == nil {
		st.writable.Wait()
	}
}

// Reset aborts the stream and returns at once. Bytes that were not sent yet
// are lost. The peer gets a [ResetError] with the code after what it has received.
// Reset after Close drops what is not sent yet.
func (st *Stream) Reset(code uint32) error {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.session.releaseHandedOverLocked(st)
	st.resetStreamLocked(code)
	return nil
}

func (st *Stream) resetStreamLocked(code uint32) {
	if st.reset == nil {
		st.reset = &ResetError{Code: code}
	}
	st.closeBothLocked()
	if st.removed {
		return
	}
	st.session.dropFramesLocked(st)
	if st.synWanted {
		st.session.removeStreamLocked(st) // the peer knows nothing of it
		return
	}
	st.rstWanted = true
	st.session.queueControlLocked(st)
}

// closeBothLocked ends all reads and writes of this side.
func (st *Stream) closeBothLocked() {
	if st.openedByPeer && !st.closed && !st.removed {
		st.session.ending++ // until removeStreamLocked
	}
	st.writeClosed, st.closed = true, true
	st.afterReset = nil
	st.readLimit.stop()
	st.writeLimit.stop()
	st.wakeReaderLocked()
	st.writable.Broadcast()
	st.session.dropReceivedLocked(st)
	st.session.releaseWindowLocked(st)
}

// removeStreamLocked is called when both directions of st have ended. The session
// then ignores frames with its id. Received bytes can still be read.
func (s *Session) removeStreamLocked(st *Stream) {
	if st.removed {
		return
	}
	st.removed = true
	delete(s.streams, st.id)
	s.streamEnded.Broadcast()
	s.roomWaiters.remove(st)
	s.dropFramesLocked(st)
	s.leaveShareLocked(st)
	s.controlQueue.remove(st)
	s.ackQueue.remove(st)
	s.releaseWindowLocked(st)
	if st.synWanted {
		st.synWanted = false
		s.unsentSYNs--
		s.openReady.Signal()
	}
	s.noteAckLocked(st)
	if st.openedByPeer && !st.links[listAccept].in {
		s.incomingStreams--
	}
	if st.openedByPeer && st.closed {
		s.ending--
		s.mayRead.Signal()
	}
	st.wakeReaderLocked()
	st.writable.Broadcast()
}

// removeIfEndedLocked forgets st if both directions have ended.
func (s *Session) removeIfEndedLocked(st *Stream) {
	if st.finReceived && st.finSent {
		s.removeStreamLocked(st)
	}
}

// readErrorLocked returns the error of a Read that finds no data, or nil if it has
// to wait.
func (st *Stream) readErrorLocked() error {
	switch {
	case st.finReceived:
		return io.EOF
	case st.reset != nil:
		return st.reset
	case st.removed:
		return st.session.err
	}
	return nil
}

// writeErrorLocked returns why nothing can be written, or nil.
func (st *Stream) writeErrorLocked() error {
	switch {
	case st.closed:
		return st.closedErrorLocked()
	case st.writeLimit.passed:
		return os.ErrDeadlineExceeded
	case st.reset != nil:
		return st.reset
	case st.session.err != nil:
		return st.session.err
	case st.writeClosed:
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
	return &net.OpError{Op: op, Net: "tunnel", Source: st.local, Addr: st.remote, Err: err}
}

// SetAddrs sets what LocalAddr and RemoteAddr return. Without it they return the
// carrier's addresses.
func (st *Stream) SetAddrs(local, remote net.Addr) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.local, st.remote = local, remote
}

// LocalAddr returns the address that SetAddrs set, or the carrier's.
func (st *Stream) LocalAddr() net.Addr {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return cmp.Or(st.local, st.session.carrier.LocalAddr())
}

// RemoteAddr returns the address that SetAddrs set, or the carrier's.
func (st *Stream) RemoteAddr() net.Addr {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return cmp.Or(st.remote, st.session.carrier.RemoteAddr())
}

// SetDeadline sets both deadlines.
func (st *Stream) SetDeadline(t time.Time) error {
	return st.setDeadlines(t, true, true)
}

// SetReadDeadline bounds Read and WriteTo, also calls that wait already.
func (st *Stream) SetReadDeadline(t time.Time) error {
	return st.setDeadlines(t, true, false)
}

// SetWriteDeadline bounds Write and ReadFrom, also calls that wait already. The
// count that such a call returns is exact: so many bytes will be sent, and no more.
func (st *Stream) SetWriteDeadline(t time.Time) error {
	return st.setDeadlines(t, false, true)
}

func (st *Stream) setDeadlines(t time.Time, read, write bool) error {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
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

// deadline is a read or write deadline. The lock of the Cond that it wakes guards
// it.
type deadline struct {
	passed bool
	timer  *time.Timer
}

// set makes t the deadline; a zero t means none. There is one timer for a deadline,
// and none for each operation.
func (d *deadline) set(t time.Time, wake *sync.Cond) {
	d.stop()
	d.passed = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		wake.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		wake.L.Lock()
		defer wake.L.Unlock()
		if d.timer == timer { // and no other was set meanwhile
			d.passed = true
			wake.Broadcast()
		}
	})
	d.timer = timer
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// AfterReadable calls f once, in a goroutine of its own, as soon as Read need not
// wait: when data or an end came, or the stream or its session was ended here. That
// may be at once. Deadlines have no effect. Every f is called in the end; nothing
// here waits for it to return. Only one f may be set at a time: set another after
// this one was called.
func (st *Stream) AfterReadable(f func()) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.afterReadable != nil {
		panic("mux: AfterReadable while another function waits")
	}
	if st.first != nil || st.closed || st.readErrorLocked() != nil {
		go f()
		return
	}
	st.afterReadable = f
}

// wakeReaderLocked is called when Read may go on.
func (st *Stream) wakeReaderLocked() {
	st.readable.Broadcast() // wakes one goroutine: readMu admits one Read
	if f := st.afterReadable; f != nil {
		st.afterReadable = nil
		go f()
	}
}

// AfterReset calls f once, in a goroutine of its own, when the peer resets the
// stream. If it was reset already, f is called before AfterReset returns. ended
// says that the peer had ended its data before: it has sent all, and reads no more.
// f is not called after the stream was closed or reset here, or the session has
// ended. The session's Close waits for f, so f must not call it. A later call
// replaces f.
func (st *Stream) AfterReset(f func(code uint32, ended bool)) {
	s := st.session
	s.mu.Lock()
	reset, ended := st.reset, st.finReceived
	if reset == nil && !st.closed {
		st.afterReset = f
	}
	s.mu.Unlock()
	if reset != nil {
		f(reset.Code, ended)
	}
}

// notifyResetLocked calls the AfterReset function of st, which was not reset by its owner.
func (s *Session) notifyResetLocked(st *Stream, ended bool) {
	if f, code := st.afterReset, st.reset.Code; f != nil {
		st.afterReset = nil
		s.loops.Go(func() { f(code, ended) })
	}
}

// The lists of streams. A stream can be in several at the same time.
const (
	listBulk        = iota // has other frames than listInteractive
	listRoom               // a Write waits for room in the session's queue
	listControl            // has a frame that is sent before data
	listInteractive        // has a small frame, and had nothing to send before
	listAccept             // waits for Accept
	listAck                // is to be acknowledged
	listUnread             // has received bytes
	listCount
	sharedLists = listRoom + 1 // the first ones are shareQueues
)

type listLink struct {
	prev, next *Stream
	in         bool
}

// streamList is a queue of streams, any of which can be removed in constant time.
type streamList struct {
	kind        int
	first, last *Stream
}

func (l *streamList) empty() bool { return l.first == nil }

// push appends st, unless it is in the list.
func (l *streamList) push(st *Stream) {
	k := &st.links[l.kind]
	if k.in {
		return
	}
	*k = listLink{prev: l.last, in: true}
	if l.last == nil {
		l.first = st
	} else {
		l.last.links[l.kind].next = st
	}
	l.last = st
}

// remove removes st, if it is in the list.
func (l *streamList) remove(st *Stream) {
	k := &st.links[l.kind]
	if !k.in {
		return
	}
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.links[l.kind].next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.links[l.kind].prev = k.prev
	}
	*k = listLink{}
}

func (l *streamList) pop() *Stream {
	st := l.first
	if st != nil {
		l.remove(st)
	}
	return st
}
