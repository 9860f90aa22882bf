package tunnel

import "sync"

const (
	// bufferSize has room for the records of 128 KiB and some small ones: two
	// frames of 64 KiB of a session go out in one piece.
	bufferSize = 136 << 10
	// maxGather leaves room for a frame's header, where WebSocket is below.
	maxGather = bufferSize - maxFrameHeader
)

// buffers are shared by all carriers: one that is idle holds none.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func getBuffer() *[bufferSize]byte  { return buffers.Get().(*[bufferSize]byte) }
func putBuffer(b *[bufferSize]byte) { buffers.Put(b) }
