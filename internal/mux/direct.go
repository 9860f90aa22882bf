package mux

import (
	"io"
	"net"
	"syscall"
)

// socketConn is a connection of the kernel's that carries a stream of bytes.
type socketConn interface {
	net.Conn
	syscall.Conn
}

// socketOf returns what v is if it is a TCP or a stream unix socket, and not
// something that wraps one.
func socketOf(v any) (socketConn, bool) {
	switch c := v.(type) {
	case *net.TCPConn:
		return c, c != nil
	case *net.UnixConn:
		return c, c != nil && c.LocalAddr() != nil && c.LocalAddr().Network() == "unix"
	}
	return nil, false
}

// sink is where a WriteTo writes to. While it waits for data, readLoop writes
// what comes, as far as that is taken at once: the bytes are still in the cache,
// and nobody needs to be woken. The session's lock guards the fields.
type sink struct {
	w      io.Writer
	raw    *rawWriter // nil: WriteTo alone writes
	n      int64      // bytes that were written
	err    error      // of readLoop's write
	busy   bool       // readLoop is writing, without the lock
	wanted bool       // WriteTo waits until it isn't
}

// deliverLocked writes to the sink of st what it takes of p at once, and
// returns how much that was. It gives up the lock meanwhile.
func (s *Session) deliverLocked(st *Stream, p []byte) int {
	k := st.sink
	if k == nil || k.raw == nil || k.err != nil || st.first != nil || st.readLimit.passed {
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
	n, err := k.raw.try(p)
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
