package relay

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
)

const (
	// pipeSize is the most that an unprivileged process may ask for by default.
	pipeSize = 1 << 20

	spliceNonblock = 2    // SPLICE_F_NONBLOCK
	setPipeSize    = 1031 // F_SETPIPE_SZ
)

// pipe is the pipe that splice(2) needs between two sockets. The kernel counts its
// whole size against the user's limit.
type pipe struct {
	r, w    int
	cleanup runtime.Cleanup
}

var pipes sync.Pool

// takePipe returns an empty pipe, or nil if the system gives no more.
func takePipe() *pipe {
	if p, ok := pipes.Get().(*pipe); ok {
		return p
	}
	var fds [2]int
	if syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK) != nil {
		return nil
	}
	// A smaller pipe works, too, with more calls.
	syscall.Syscall(syscall.SYS_FCNTL, uintptr(fds[0]), setPipeSize, pipeSize)
	p := &pipe{r: fds[0], w: fds[1]}
	p.cleanup = runtime.AddCleanup(p, closePipe, fds)
	return p
}

func closePipe(fds [2]int) {
	syscall.Close(fds[0])
	syscall.Close(fds[1])
}

// splicer is one direction between two sockets. It has a pipe only while the pipe has
// bytes: package net keeps one, with two descriptors, for as long as the copy lasts.
type splicer struct {
	pipe *pipe
	in   int   // bytes in the pipe
	err  error // from the last system call
}

// spliceConns copies in the kernel until src ends or a call fails. If that is not
// possible, or not any more, done is false and the caller goes on.
func spliceConns(dst, src net.Conn) (n int64, done bool, err error) {
	from, to := rawConn(src), rawConn(dst)
	if from == nil || to == nil {
		return 0, false, nil
	}
	s := &splicer{}
	defer s.releasePipe()
	fill, empty := s.fillPipe, s.emptyPipe
	for {
		err := from.Read(fill)
		if s.pipe == nil && err == nil || s.err == syscall.EINVAL {
			return n, false, nil
		}
		if err == nil && s.err != nil {
			err = opError("read", src, s.err)
		}
		if err != nil || s.in == 0 {
			return n, true, err
		}
		n += int64(s.in)
		err = to.Write(empty)
		n -= int64(s.in)
		if err == nil && s.err != nil {
			err = opError("write", dst, s.err)
		}
		if err != nil {
			return n, true, err
		}
	}
}

// rawConn returns nil for a connection that is not a stream socket.
func rawConn(conn net.Conn) syscall.RawConn {
	var c syscall.Conn
	switch conn := conn.(type) {
	case *net.TCPConn:
		c = conn
	case *net.UnixConn:
		if conn.LocalAddr().Network() != "unix" {
			return nil
		}
		c = conn
	default:
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil // its Read says what is wrong
	}
	return raw
}

// fillPipe moves received bytes into the pipe, and gives the pipe back if there are
// none. An empty pipe without an error means that the source has ended.
func (s *splicer) fillPipe(fd uintptr) bool {
	if s.pipe == nil {
		if s.pipe = takePipe(); s.pipe == nil {
			return true
		}
	}
	s.in, s.err = spliceFD(int(fd), s.pipe.w, pipeSize)
	if s.err != syscall.EAGAIN {
		return true
	}
	s.err = nil
	s.releasePipe()
	return false
}

// emptyPipe moves the bytes in the pipe to the destination.
func (s *splicer) emptyPipe(fd uintptr) bool {
	for s.in > 0 {
		n, err := spliceFD(s.pipe.r, int(fd), s.in)
		if err == syscall.EAGAIN {
			return false
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			s.err = err
			return true
		}
		s.in -= n
	}
	return true
}

// releasePipe gives the pipe back. A pipe with bytes is closed.
func (s *splicer) releasePipe() {
	p := s.pipe
	if p == nil {
		return
	}
	s.pipe = nil
	if s.in == 0 {
		pipes.Put(p)
		return
	}
	p.cleanup.Stop()
	closePipe([2]int{p.r, p.w})
}

func spliceFD(from, to, most int) (int, error) {
	for {
		n, err := syscall.Splice(from, nil, to, nil, most, spliceNonblock)
		if err != syscall.EINTR {
			return max(int(n), 0), err
		}
	}
}

func opError(op string, conn net.Conn, err error) error {
	if number, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError("splice", number)
	}
	return &net.OpError{Op: op, Net: conn.LocalAddr().Network(), Source: conn.LocalAddr(), Addr: conn.RemoteAddr(), Err: err}
}
