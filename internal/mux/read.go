package mux

import (
	"io"
	"os"
)

// Read returns io.EOF only after the peer ended what it sends.
func (st *Stream) Read(p []byte) (int, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := st.receivedLocked(len(p) == 0)
	if len(p) == 0 || err != nil {
		return 0, st.opError("read", err)
	}
	n := min(len(p), b.w-b.r)
	if n <= smallFrame {
		copy(p, b.data[b.r:b.r+n])
	} else {
		st.inUse = true
		s.mu.Unlock()
		copy(p, b.data[b.r:b.r+n])
		s.mu.Lock()
		st.inUse = false
	}
	s.consumeLocked(st, b, n)
	return n, nil
}

// WriteTo writes to w what comes until the peer ends it, without copying it.
// What w doesn't take can still be read. The error is w's or Read's.
//
// To a *net.TCPConn or a stream *net.UnixConn the session writes, as long as
// that need not wait; a write deadline of w counts for a write that has to.
func (st *Stream) WriteTo(w io.Writer) (int64, error) {
	k := &sink{w: w, raw: newRawWriter(w)}
	for {
		err := st.writeChunk(k)
		if err == io.EOF {
			return k.n, nil
		}
		if err != nil {
			return k.n, err
		}
	}
}

func (st *Stream) writeChunk(k *sink) error {
	st.reading.Lock()
	defer st.reading.Unlock()
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	st.sink = k
	b, err := st.receivedLocked(false)
	st.sink = nil
	if k.err != nil {
		return k.err
	}
	if err != nil {
		return st.opError("read", err)
	}
	chunk := b.data[b.r:b.w]
	st.inUse = true
	s.mu.Unlock()
	n, err := k.w.Write(chunk)
	s.mu.Lock()
	st.inUse = false
	if n < 0 || n > len(chunk) {
		n = 0
	}
	if err == nil && n < len(chunk) {
		err = io.ErrShortWrite
	}
	k.n += int64(n)
	s.consumeLocked(st, b, n)
	if err == io.EOF { // of w: it is no end of the stream
		err = io.ErrUnexpectedEOF
	}
	return err
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
