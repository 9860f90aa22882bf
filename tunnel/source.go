package tunnel

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
)

// smallRead is what a source offers while it waits on what is no socket.
const smallRead = 1 << 10

// source reads from a connection in large pieces, without holding a large
// buffer while it waits. It has one reader at a time.
type source struct {
	conn   net.Conn
	try    *tryReader // nil if conn is no socket
	direct bool       // conn reads ahead itself
	strict bool       // nothing is read ahead: who sends it is a stranger

	in     []byte            // what was read ahead, in small or pooled
	pooled *[bufferSize]byte // nil while nothing waits in it
	small  []byte
	full   bool  // the last read filled its buffer: there may be more
	err    error // that wait found, for the next Read: a socket says it once
}

func newSource(conn net.Conn) source {
	s := source{conn: conn, try: newTryReader(conn)}
	switch conn.(type) {
	case *wsConn, *carrier, *tls.Conn:
		s.direct = true
	}
	return s
}

// Read returns what was read ahead before anything else.
func (s *source) Read(p []byte) (int, error) {
	if len(s.in) == 0 {
		if err := s.err; err != nil {
			s.err = nil
			return 0, err
		}
		if s.direct || s.strict || len(p) >= bufferSize {
			return s.conn.Read(p)
		}
		if err := s.fill(nil); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.in)
	if s.in = s.in[n:]; len(s.in) == 0 {
		s.in = nil
		if s.pooled != nil {
			putBuffer(s.pooled)
			s.pooled = nil
		}
	}
	return n, nil
}

// wait returns when Read has something or an error, or at once if conn is no
// socket. A deadline is no error: the next Read may have another.
func (s *source) wait(idle func()) {
	if s.try == nil || len(s.in) > 0 || s.err != nil {
		return
	}
	if err := s.fill(idle); !errors.Is(err, os.ErrDeadlineExceeded) {
		s.err = err
	}
}

// fill waits for bytes, and on a socket it calls idle, unless nil, if it really
// does. An error that comes with some comes again.
func (s *source) fill(idle func()) error {
	if s.try != nil {
		buf, n, err := s.try.read(idle)
		if err != nil {
			return err
		}
		s.pooled, s.in = buf, buf[:n]
		return nil
	}
	if s.full {
		s.pooled = getBuffer()
		n, err := s.conn.Read(s.pooled[:])
		s.full = n == bufferSize
		if n == 0 {
			putBuffer(s.pooled)
			s.pooled = nil
			return err
		}
		s.in = s.pooled[:n]
		return nil
	}
	if s.small == nil {
		s.small = make([]byte, smallRead)
	}
	n, err := s.conn.Read(s.small)
	s.full = n == smallRead
	if n == 0 {
		return err
	}
	s.in = s.small[:n]
	return nil
}
