package mux

import (
	"io"
	"net"
	"os"
	"time"
)

// Read waits for received bytes and returns up to len(p) of them. It returns io.EOF
// only if the peer has ended what it sends.
func (st *Stream) Read(p []byte) (int, error) {
	return st.readWith(len(p) == 0, nil, nil, func(received []byte) (int, error) { return copy(p, received), nil })
}

// WriteTo writes to w what is received, without copying it, until the peer ends
// its data. Bytes that w doesn't take can still be read. The error is w's or Read's.
func (st *Stream) WriteTo(w io.Writer) (int64, error) { return st.writeTo(w, nil) }

// DeliverTo is WriteTo for a conn to which nobody else writes meanwhile. If conn is
// a *net.TCPConn or a *net.UnixConn, the session's reader writes to it directly, as
// much as the socket takes at once. That is faster: the bytes are still in the
// processor's cache, and no goroutine has to be woken. If somebody else were
// writing to conn at that moment, all streams of the session would wait for that
// Write.
func (st *Stream) DeliverTo(conn net.Conn) (int64, error) {
	return st.writeTo(conn, &directWriter{socket: newSocket(conn)})
}

// writeLimiter is the Writer of a WriteTo. If a [Budget] needs what waits for it, its Write
// has to end.
type writeLimiter interface{ SetWriteDeadline(time.Time) error }

func (st *Stream) writeTo(w io.Writer, k *directWriter) (total int64, err error) {
	sink, _ := w.(writeLimiter)
	for err == nil {
		var n int
		n, err = st.readWith(false, k, sink, func(received []byte) (int, error) { return writeAll(w, received) })
		total += int64(n)
	}
	if k != nil {
		total += k.written
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}

// writeAll returns an error if w doesn't take all of p. It never returns io.EOF,
// which the caller would take for the end of the stream.
func writeAll(w io.Writer, p []byte) (int, error) {
	n, err := w.Write(p)
	if n < 0 || n > len(p) {
		n = 0
	}
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readWith waits for received bytes, and calls f with the first of them, without
// the session's lock. f returns how many it took, and may wait for sink, if that is not nil.
// If nothing is set, readWith returns at once with the stream's error, if any. While it
// waits, the session's reader writes to k, if k is not nil.
func (st *Stream) readWith(nothing bool, k *directWriter, sink writeLimiter, f func([]byte) (int, error)) (int, error) {
	st.readMu.Lock()
	defer st.readMu.Unlock()
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	st.direct = k
	b, err := st.waitReceivedLocked(nothing)
	st.direct = nil
	if k != nil && k.err != nil {
		return 0, k.err
	}
	if nothing || err != nil {
		return 0, st.opError("read", err)
	}
	received := b.data[b.r:b.w]
	st.inUse, st.sink = true, sink
	s.mu.Unlock()
	n, err := f(received)
	s.mu.Lock()
	st.inUse, st.sink = false, nil
	s.consumeReceivedLocked(st, b, n)
	if err != nil && st.reset != nil && st.reset.Code == CodeBudget && !st.reset.Remote {
		err = st.opError("read", st.reset)
	}
	return n, err
}

// waitReceivedLocked waits for received bytes, unless nothing is set, and returns
// the first buffer of them.
func (st *Stream) waitReceivedLocked(nothing bool) (*buffer, error) {
	for {
		switch k := st.direct; {
		case k != nil && k.writing:
			k.waiting = true
			st.readable.Wait()
			continue
		case k != nil && k.err != nil:
			return nil, k.err
		case st.closed:
			return nil, st.closedErrorLocked()
		case st.readLimit.passed:
			return nil, os.ErrDeadlineExceeded
		case st.first != nil || nothing:
			return st.first, nil
		}
		if err := st.readErrorLocked(); err != nil {
			return nil, err
		}
		st.readable.Wait()
	}
}

// directWriter is the conn of a DeliverTo that waits for received bytes, for
// readLoop to write to. The session's lock guards the fields.
type directWriter struct {
	socket  *socket // nil: readLoop doesn't write, only DeliverTo does
	written int64   // bytes that readLoop has written
	err     error   // of readLoop's write
	writing bool    // readLoop is writing, without the lock
	waiting bool    // DeliverTo waits until readLoop is not writing
}

// writeDirectLocked writes to the directWriter of st as much of p as the socket
// takes at once, and returns how many bytes that was. It releases the lock while
// it writes. It writes nothing if received bytes are queued, which come first.
func (s *Session) writeDirectLocked(st *Stream, p []byte) int {
	k := st.direct
	if k == nil || k.socket == nil || k.err != nil || st.first != nil || st.readLimit.passed {
		return 0
	}
	if other := s.lastDirect; other != st {
		s.lastDirect = st
		if other != nil && !other.removed {
			// Several streams receive. Each has a goroutine, and these write at the
			// same time; readLoop can write for one only.
			return 0
		}
	}
	k.writing = true
	s.mu.Unlock()
	n, err := k.socket.tryWrite(p)
	s.mu.Lock()
	k.writing = false
	k.written += int64(n)
	k.err = err
	if k.waiting || err != nil {
		k.waiting = false
		st.readable.Broadcast()
	}
	if n > 0 && !st.closed {
		s.grantCreditLocked(st, n)
	}
	return n
}

// consumeReceivedLocked removes n bytes from b, the first received buffer of st.
func (s *Session) consumeReceivedLocked(st *Stream, b *buffer, n int) {
	if st.closed {
		s.dropReceivedLocked(st) // Close could not, since b was in use
		return
	}
	b.r += n
	st.window.takenAt = s.now()
	if b.r == b.w {
		st.first = b.next
		if st.first == nil {
			st.last = nil
			s.noteAllReadLocked(st)
		}
		s.putBuffer(b)
	}
	s.grantCreditLocked(st, n)
}

// dropReceivedLocked puts back the received buffers, which nobody will read.
func (s *Session) dropReceivedLocked(st *Stream) {
	drop := &st.first
	if st.inUse {
		drop = &st.first.next // consumeReceivedLocked will drop the first
	}
	for *drop != nil {
		b := *drop
		*drop = b.next
		s.putBuffer(b)
	}
	st.last = st.first
	if st.first == nil {
		s.noteAllReadLocked(st)
	}
}

func (s *Session) noteAllReadLocked(st *Stream) {
	s.unread.remove(st)
	s.leaveBudgetLocked()
}
