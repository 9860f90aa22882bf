package relay

import (
	"io"
	"net"
	"sync"
)

// copyConn copies from src to dst until src's end, which is no error. Its
// stack, with those of whom it calls, is what most of an idle connection is.
func copyConn(dst, src net.Conn) (int64, error) {
	isTCP, isUnix := socket(dst)
	ofTCP, ofUnix := socket(src)
	if (isTCP || isUnix) && (ofTCP || ofUnix) {
		n, done, err := splice(dst, src)
		if done {
			return n, err
		}
		more, err := copyBuffered(dst, src)
		return n + more, err
	}
	// A stream of the tunnel may write to what nobody else writes to.
	if d, ok := src.(interface{ DeliverTo(net.Conn) (int64, error) }); ok {
		return d.DeliverTo(dst)
	}
	// Package net's own methods fall back to a buffer that they allocate.
	if w, ok := src.(io.WriterTo); ok && !ofTCP {
		return w.WriteTo(dst)
	}
	if r, ok := dst.(io.ReaderFrom); ok && !isTCP {
		return r.ReadFrom(src)
	}
	return copyBuffered(dst, src)
}

func socket(conn net.Conn) (isTCP, isUnix bool) {
	switch conn.(type) {
	case *net.TCPConn:
		return true, false
	case *net.UnixConn:
		return false, true
	}
	return false, false
}

// A large buffer of 64 KiB costs a third more CPU on loopback: it is split into
// a segment and 53 bytes.
const (
	smallSize = 4 << 10
	largeSize = 32 << 10
)

var (
	small = sync.Pool{New: func() any { return new([smallSize]byte) }}
	large = sync.Pool{New: func() any { return new([largeSize]byte) }}
)

// copyBuffered waits with a small buffer, and takes a large one for as long as
// the small one would be too small: most connections idle most of the time.
func copyBuffered(dst, src net.Conn) (n int64, err error) {
	for big, end := false, false; !end; big = !big {
		var m int64
		m, end, err = copyWhile(dst, src, big)
		n += m
	}
	return n, err
}

// copyWhile copies for as long as what a read brings fits a buffer of this
// kind: less than fills a small one, or at least that. end says that src has
// ended or that there is an error.
func copyWhile(dst, src net.Conn, big bool) (n int64, end bool, err error) {
	var buf []byte
	if big {
		b := large.Get().(*[largeSize]byte)
		defer large.Put(b)
		buf = b[:]
	} else {
		b := small.Get().(*[smallSize]byte)
		defer small.Put(b)
		buf = b[:]
	}
	for {
		got, rerr := src.Read(buf)
		if got > 0 {
			put, werr := dst.Write(buf[:got])
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
