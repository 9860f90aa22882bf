//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mux

import (
	"io"
	"net"
	"os"
	"syscall"
)

// rawWriter writes to a socket what it takes at once.
type rawWriter struct {
	conn net.Conn
	raw  syscall.RawConn
	step func(fd uintptr) // the method, bound once

	p   []byte
	n   int
	err error
}

// newRawWriter returns nil if w is no socket.
func newRawWriter(w io.Writer) *rawWriter {
	conn, ok := socketOf(w)
	if !ok {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil // its Write says what is wrong
	}
	k := &rawWriter{conn: conn, raw: raw}
	k.step = k.attempt
	return k
}

// try never waits. It asks for control of the socket and not for its lock of
// writes, which somebody else might hold for long.
func (k *rawWriter) try(p []byte) (int, error) {
	k.p, k.n, k.err = p, 0, nil
	k.raw.Control(k.step) // of a closed one, Write says so
	k.p = nil
	if k.err != nil {
		return 0, &net.OpError{Op: "write", Net: k.conn.LocalAddr().Network(), Source: k.conn.LocalAddr(),
			Addr: k.conn.RemoteAddr(), Err: os.NewSyscallError("write", k.err)}
	}
	return k.n, nil
}

func (k *rawWriter) attempt(fd uintptr) {
	// The flag is for sockets that os.File.Fd made to block.
	n, err := syscall.SendmsgN(int(fd), k.p, nil, nil, syscall.MSG_DONTWAIT)
	switch err {
	case nil:
		k.n = n
	case syscall.EAGAIN, syscall.EINTR, syscall.ENOBUFS:
	default:
		k.err = err
	}
}
