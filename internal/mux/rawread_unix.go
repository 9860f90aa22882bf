//go:build unix

package mux

import (
	"io"
	"net"
	"os"
	"syscall"
)

// rawReader reads a socket into a buffer that it takes only once there is
// something to read.
type rawReader interface {
	read(s *Session, limit int) (*buffer, error)
}

type socket struct {
	conn net.Conn
	raw  syscall.RawConn
}

func newRawReader(c socketConn) rawReader {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil // its Read says what is wrong
	}
	return &socket{c, raw}
}

func (k *socket) read(s *Session, limit int) (*buffer, error) {
	var b *buffer
	var n int
	var rerr error
	err := k.raw.Read(func(fd uintptr) bool {
		b = s.frame(len(sizes) - 1)
		n, rerr = readFD(int(fd), b.data[headerSize:headerSize+limit])
		if rerr == syscall.EAGAIN {
			s.put(b)
			b = nil
			return false
		}
		return true
	})
	if b == nil {
		return nil, err
	}
	if n > 0 {
		b.w += n
		return b, nil
	}
	s.put(b)
	if rerr != nil {
		return nil, &net.OpError{Op: "read", Net: k.conn.LocalAddr().Network(), Source: k.conn.LocalAddr(),
			Addr: k.conn.RemoteAddr(), Err: os.NewSyscallError("read", rerr)}
	}
	return nil, io.EOF
}

func readFD(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
