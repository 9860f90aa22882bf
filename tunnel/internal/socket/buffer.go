package socket

import "sync"

// BufferSize is the size of a buffer. It has room for the TLS records of 128 KiB
// and some small ones: two frames of 64 KiB of a session go out in one piece.
const BufferSize = 136 << 10

// buffers are shared by all connections: one that is idle holds none.
var buffers = sync.Pool{New: func() any { return new([BufferSize]byte) }}

// GetBuffer returns a buffer for the caller, who gives it back by PutBuffer.
func GetBuffer() *[BufferSize]byte { return buffers.Get().(*[BufferSize]byte) }

// PutBuffer gives a buffer back, which the caller may not use any more.
func PutBuffer(b *[BufferSize]byte) { buffers.Put(b) }
