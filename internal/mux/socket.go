//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mux

import (
	"io"
	"net"
	"os"
	"syscall"
)

// socket reads and writes the file descriptor of a TCP or unix connection. It takes
// the same locks as the connection's Read and Write, so that writes don't mix.
type socket struct {
	conn net.Conn
	raw  syscall.RawConn
}

// newSocket returns nil if v is not a *net.TCPConn or *net.UnixConn itself.
func newSocket(v any) *socket {
	var conn interface {
		net.Conn
		syscall.Conn
	}
	switch c := v.(type) {
	case *net.TCPConn:
		conn = c
	case *net.UnixConn:
		conn = c
	default:
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil // conn.Read and Write will return the error
	}
	return &socket{conn, raw}
}

// read returns a frame with up to limit bytes. It takes a buffer only when there is
// something to read.
func (k *socket) read(s *Session, limit int) (*buffer, error) {
	var b *buffer
	var err error
	waitErr := k.raw.Read(func(fd uintptr) bool {
		b = s.getFrame(len(sizes) - 1)
		var n int
		for err = syscall.EINTR; err == syscall.EINTR; {
			n, err = syscall.Read(int(fd), b.data[headerSize:headerSize+limit])
		}
		if n > 0 {
			b.w += n
			return true
		}
		s.putBuffer(b)
		b = nil
		return err != syscall.EAGAIN
	})
	switch {
	case b != nil || waitErr != nil:
		return b, waitErr
	case err == nil:
		return nil, io.EOF
	}
	return nil, k.opError("read", err)
}

// tryWrite writes as much of p as the socket takes at once, and returns how much.
func (k *socket) tryWrite(p []byte) (n int, err error) {
	k.raw.Write(func(fd uintptr) bool {
		// MSG_DONTWAIT is for sockets that os.File.Fd has made blocking.
		n, err = syscall.SendmsgN(int(fd), p, nil, nil, syscall.MSG_DONTWAIT)
		return true
	}) // conn.Write will return the error of a closed socket
	switch err {
	case nil:
		return n, nil
	case syscall.EAGAIN, syscall.EINTR, syscall.ENOBUFS:
		return 0, nil
	}
	return 0, k.opError("write", err)
}

func (k *socket) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: k.conn.LocalAddr().Network(), Source: k.conn.LocalAddr(),
		Addr: k.conn.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}
