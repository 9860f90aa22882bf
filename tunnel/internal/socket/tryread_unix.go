//go:build unix

package socket

import (
	"io"
	"net"
	"os"
	"syscall"
)

// tryReader reads from a socket into a buffer that it takes from the pool only
// when there is something to read. It uses the socket without blocking through
// syscall.RawConn, whose Read calls a function again whenever the socket may be
// readable.
type tryReader struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	step func(fd uintptr) bool // the method, bound once
	idle func()                // called before it waits, unless nil

	// The result.
	in  *[BufferSize]byte
	n   int
	err error
}

// newTryReader returns nil if conn is no socket.
func newTryReader(conn net.Conn) *tryReader {
	tc, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return nil
	}
	r := &tryReader{conn: tc, raw: raw}
	r.step = r.attempt
	return r
}

// read waits until bytes come; if it really does, it calls idle once, unless
// nil. The caller puts the buffer back; it is nil if there is an error.
func (r *tryReader) read(idle func()) (*[BufferSize]byte, int, error) {
	r.idle = idle
	if err := r.raw.Read(r.step); err != nil {
		return nil, 0, err
	}
	in, n, err := r.in, r.n, r.err
	r.in, r.n, r.err = nil, 0, nil
	return in, n, err
}

// attempt reads once, without waiting. It returns false if it is to be called
// again when the socket has something.
func (r *tryReader) attempt(fd uintptr) bool {
	in := GetBuffer()
	n, err := syscall.Read(int(fd), in[:])
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), in[:])
	}
	switch {
	case err == syscall.EAGAIN:
		PutBuffer(in)
		if r.idle != nil {
			r.idle()
			r.idle = nil
		}
		return false
	case err != nil:
		r.err = &net.OpError{Op: "read", Net: "tcp", Source: r.conn.LocalAddr(), Addr: r.conn.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	case n == 0:
		r.err = io.EOF
	default:
		r.in, r.n = in, n
		return true
	}
	PutBuffer(in)
	return true
}
