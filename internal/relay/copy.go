package relay

import (
	"io"
	"net"
	"sync"
)

// copyConn copies from src to dst until src returns io.EOF, which is no error. Most of an
// idle connection's memory is the stack of this function and of those it calls: keep
// them small.
func copyConn(dst, src net.Conn) (int64, error) {
	_, isTCP := dst.(*net.TCPConn)
	_, ofTCP := src.(*net.TCPConn)
	// A stream of the tunnel may write to dst directly, as nobody else does.
	if d, ok := src.(interface{ DeliverTo(net.Conn) (int64, error) }); ok {
		return d.DeliverTo(dst)
	}
	// Not the methods of package net, which fall back to a buffer that they allocate.
	if w, ok := src.(io.WriterTo); ok && !ofTCP {
		return w.WriteTo(dst)
	}
	if r, ok := dst.(io.ReaderFrom); ok && !isTCP {
		return r.ReadFrom(src)
	}
	return copyBuffered(dst, src)
}

// A large buffer of 64 KiB would cost a third more CPU on loopback, where it is split
// into a segment and 53 bytes. With the headers of two frames of HTTP/2, this one fills
// two TLS records.
const (
	smallSize = 4 << 10
	largeSize = 32<<10 - 2*9
)

var (
	smallBuffers = newPool(smallSize)
	largeBuffers = newPool(largeSize)
)

func newPool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { return new(make([]byte, size)) }}
}

// copyBuffered waits with a small buffer, and uses a large one while reads fill the
// small one: most connections are idle most of the time.
func copyBuffered(dst, src net.Conn) (n int64, err error) {
	for big, end := false, false; !end; big = !big {
		var m int64
		m, end, err = copyWhile(dst, src, big)
		n += m
	}
	return n, err
}

// copyWhile copies with a small buffer until a read fills it, or with a big one until a
// read would fit the small one. end says that src has ended or that a call has failed.
func copyWhile(dst, src net.Conn, big bool) (n int64, end bool, err error) {
	buffers := smallBuffers
	if big {
		buffers = largeBuffers
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		got, rerr := src.Read(*buf)
		if got > 0 {
			put, werr := dst.Write((*buf)[:got])
			n += int64(put)
			if werr == nil && put != got {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return n, true, werr
			}
		}
		switch {
		case rerr == io.EOF:
			return n, true, nil
		case rerr != nil:
			return n, true, rerr
		case (got >= smallSize) != big:
			return n, false, nil
		}
	}
}
