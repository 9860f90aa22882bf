package mux

import (
	"io"
	"net"
	"os"
)

// Read returns io.EOF only after the peer ended what it sends.
func (st *Stream) Read(p []byte) (int, error) {
	return st.take(len(p) == 0, nil, func(received []byte) (int, error) { return copy(p, received), nil })
}

// WriteTo writes to w what comes until the peer ends it, without copying it.
// What w doesn't take can still be read. The error is w's or Read's.
func (st *Stream) WriteTo(w io.Writer) (int64, error) { return st.writeTo(w, nil) }

// DeliverTo is WriteTo for who owns conn: nobody else may write to it meanwhile.
// To a *net.TCPConn or a *net.UnixConn the session's reader writes what comes, as
// far as that is taken at once: the bytes are still in the processor's cache, and
// nobody needs to be woken. Should somebody else be in the middle of a Write to
// conn, all streams of the session would wait for that one.
func (st *Stream) DeliverTo(conn net.Conn) (int64, error) {
	return st.writeTo(conn, &sink{socket: newSocket(conn)})
}

func (st *Stream) writeTo(w io.Writer, k *sink) (total int64, err error) {
	for err == nil {
		var n int
		n, err = st.take(false, k, func(received []byte) (int, error) { return writeAll(w, received) })
		total += int64(n)
	}
	if k != nil {
		total += k.n
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}

// writeAll returns an error if w doesn't take all, and not io.EOF, which would
// look like the end of what is read.
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

// take waits for data, unless nothing is to be read, and has f take of it. The
// lock is not held meanwhile. While it waits, k has what comes.
func (st *Stream) take(nothing bool, k *sink, f func([]byte) (int, error)) (int, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	st.sink = k
	b, err := st.receivedLocked(nothing)
	st.sink = nil
	if k != nil && k.err != nil {
		return 0, k.err
	}
	if nothing || err != nil {
		return 0, st.opError("read", err)
	}
	received := b.data[b.r:b.w]
	st.inUse = true
	s.mu.Unlock()
	n, err := f(received)
	s.mu.Lock()
	st.inUse = false
	s.consumeLocked(st, b, n)
	return n, err
}

// receivedLocked waits for data, unless nothing is to be read, and returns the
// first of it.
func (st *Stream) receivedLocked(nothing bool) (*buffer, error) {
	for {
		switch k := st.sink; {
		case k != nil && k.busy:
			k.wanted = true
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

// sink is where a DeliverTo writes to. The session's lock guards the fields.
type sink struct {
	socket *socket // nil: DeliverTo only writes
	n      int64   // bytes that readLoop has written
	err    error   // of that
	busy   bool    // readLoop is writing, without the lock
	wanted bool    // DeliverTo waits until it isn't
}

// deliverLocked writes to the sink of st what it takes of p at once, and
// returns how much that was. It gives up the lock meanwhile.
func (s *Session) deliverLocked(st *Stream, p []byte) int {
	k := st.sink
	if k == nil || k.socket == nil || k.err != nil || st.first != nil || st.readLimit.passed {
		return 0
	}
	if other := s.delivered; other != st {
		s.delivered = st
		if other != nil && !other.gone {
			return 0 // several streams flow: they can write at the same time
		}
	}
	k.busy = true
	s.mu.Unlock()
	n, err := k.socket.tryWrite(p)
	s.mu.Lock()
	k.busy = false
	k.n += int64(n)
	k.err = err
	if k.wanted || err != nil {
		k.wanted = false
		st.readable.Broadcast()
	}
	if n > 0 && !st.closed {
		s.creditLocked(st, n)
	}
	return n
}

// consumeLocked takes n bytes from b, which is the first that st received.
func (s *Session) consumeLocked(st *Stream, b *buffer, n int) {
	if st.closed {
		s.dropReceivedLocked(st) // Close left it to us
		return
	}
	b.r += n
	if b.r == b.w {
		st.first = b.next
		if st.first == nil {
			st.last = nil
		}
		s.put(b)
	}
	s.creditLocked(st, n)
}

// dropReceivedLocked gives back what nobody will read.
func (s *Session) dropReceivedLocked(st *Stream) {
	if st.inUse {
		return // whoever uses it does it
	}
	for b := st.first; b != nil; {
		next := b.next
		s.put(b)
		b = next
	}
	st.first, st.last = nil, nil
}
