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
func (st *Stream) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		n, err := st.writeChunk(w)
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func (st *Stream) writeChunk(w io.Writer) (int, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := st.receivedLocked(false)
	if err != nil {
		return 0, st.opError("read", err)
	}
	chunk := b.data[b.r:b.w]
	st.inUse = true
	s.mu.Unlock()
	n, err := w.Write(chunk)
	s.mu.Lock()
	st.inUse = false
	if n < 0 || n > len(chunk) {
		n = 0
	}
	if err == nil && n < len(chunk) {
		err = io.ErrShortWrite
	}
	s.consumeLocked(st, b, n)
	if err == io.EOF { // of w: it is no end of the stream
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// receivedLocked waits for data, unless nothing is to be read, and returns the
// first of it.
func (st *Stream) receivedLocked(nothing bool) (*buffer, error) {
	for {
		switch {
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
