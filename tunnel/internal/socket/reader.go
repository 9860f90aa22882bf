package socket

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
)

// SmallRead is how much a Reader offers while it waits for a connection that is
// no socket.
const SmallRead = 1 << 10

// readsAhead is implemented by connections that read ahead themselves: a [Reader]
// on top of one would only copy once more.
type readsAhead interface{ ReadsAhead() }

// Reader reads from a connection in large pieces, and holds no large buffer while
// it waits.
//
// A blocking read would need its buffer for as long as it waits, 136 KiB for each
// idle connection. So on a socket the Reader takes a buffer from the pool, tries
// to read without blocking, and gives the buffer back if no bytes have come
// before it waits for the socket. On any other connection, which cannot be tried,
// it waits with a small buffer of its own, and takes a large one for the next read
// if that was filled.
//
// A Reader has one caller at a time.
type Reader struct {
	// With Exact it does not read ahead: the peer is a stranger, and what it sends is
	// counted as it is read.
	Exact bool

	conn   net.Conn
	try    *tryReader // nil if conn is no socket
	direct bool       // conn reads ahead itself

	in     []byte            // what was read ahead, in small or pooled
	pooled *[BufferSize]byte // nil while nothing waits in it
	small  []byte
	full   bool  // the last read filled its buffer: there may be more
	err    error // that Wait found, for the next Read: a socket says it once
}

// NewReader returns a Reader of conn.
func NewReader(conn net.Conn) Reader {
	r := Reader{conn: conn, try: newTryReader(conn)}
	switch conn.(type) {
	case readsAhead, *tls.Conn:
		r.direct = true
	}
	return r
}

// Read returns what was read ahead before anything else.
func (r *Reader) Read(p []byte) (int, error) {
	if len(r.in) == 0 {
		if err := r.err; err != nil {
			r.err = nil
			return 0, err
		}
		if r.direct || r.Exact || len(p) >= BufferSize {
			return r.conn.Read(p)
		}
		if err := r.fill(nil); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.in)
	if r.in = r.in[n:]; len(r.in) == 0 {
		r.in = nil
		r.putPooled()
	}
	return n, nil
}

func (r *Reader) putPooled() {
	if r.pooled != nil {
		PutBuffer(r.pooled)
		r.pooled = nil
	}
}

// Wait returns when Read has something or an error, or at once if the connection
// is no socket. It calls idle once, unless nil, if it really waits. A deadline is
// no error: the next Read may have another one.
func (r *Reader) Wait(idle func()) {
	if r.try == nil || len(r.in) > 0 || r.err != nil {
		return
	}
	if err := r.fill(idle); !errors.Is(err, os.ErrDeadlineExceeded) {
		r.err = err
	}
}

// fill waits for bytes, and on a socket it calls idle, unless nil, if it really
// waits. An error that comes with bytes comes again.
func (r *Reader) fill(idle func()) error {
	if r.try != nil {
		buf, n, err := r.try.read(idle)
		if err != nil {
			return err
		}
		r.pooled, r.in = buf, buf[:n]
		return nil
	}
	if r.small == nil {
		r.small = make([]byte, SmallRead)
	}
	buf := r.small
	if r.full {
		r.pooled = GetBuffer()
		buf = r.pooled[:]
	}
	n, err := r.conn.Read(buf)
	r.full = n == len(buf)
	if n == 0 {
		r.putPooled()
		return err
	}
	r.in = buf[:n]
	return nil
}
