// Package socket has what the connections of a tunnel need of the socket below
// them: large reads that hold no buffer while they wait, the options of TCP, and
// a lock that may be held while the network blocks.
package socket

import (
	"net"
	"sync"
	"time"
)

// CloseTimeout is how long a Close may take to say goodbye to a peer that reads
// nothing.
const CloseTimeout = 100 * time.Millisecond

// Innermost returns the connection at the bottom of conn, as far as the method
// NetConn leads.
func Innermost(conn net.Conn) net.Conn {
	for {
		n, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		below := n.NetConn()
		if below == nil {
			return conn
		}
		conn = below
	}
}

// CloseAfter closes the innermost connection of conn after a while, unless stop
// is called before. It bounds a call that has no deadline of its own.
func CloseAfter(conn net.Conn, wait time.Duration) (stop func() bool) {
	return time.AfterFunc(wait, func() { Innermost(conn).Close() }).Stop
}

// Flush sends what conn has gathered, if it gathers.
func Flush(conn net.Conn) error {
	if f, ok := conn.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

// Mutex is a mutex that is held while the network blocks. Unlike a goroutine
// that waits for a sync.Mutex, one that waits for this channel counts as idle in
// a bubble of testing/synctest, so that the clock of a test goes on.
type Mutex chan struct{}

// NewMutex returns a Mutex that is free.
func NewMutex() Mutex { return make(Mutex, 1) }

// Lock waits until the mutex is free, and takes it.
func (m Mutex) Lock() { m <- struct{}{} }

// TryLock takes the mutex if it is free, and reports whether it was.
func (m Mutex) TryLock() bool {
	select {
	case m <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock frees the mutex.
func (m Mutex) Unlock() { <-m }

// BufferSize is the size of a buffer. It has room for the TLS records of 128 KiB
// and some small ones: two frames of 64 KiB of a session go out in one piece.
const BufferSize = 136 << 10

// buffers are shared by all connections: one that is idle holds none.
var buffers = sync.Pool{New: func() any { return new([BufferSize]byte) }}

// GetBuffer returns a buffer. The caller gives it back by PutBuffer.
func GetBuffer() *[BufferSize]byte { return buffers.Get().(*[BufferSize]byte) }

// PutBuffer gives a buffer back, which the caller may not use any more.
func PutBuffer(b *[BufferSize]byte) { buffers.Put(b) }
