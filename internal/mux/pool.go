package mux

import "sync"

// sizes are those of the pooled buffers. Each is at most twice the one before
// from 4 KiB on, so that what a stream received takes at most twice its size.
var sizes = [...]int{512, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10}

const (
	classSmall  = 1
	classGather = 3
)

// pools are shared by all sessions: an idle session holds no buffers.
var pools [len(sizes)]sync.Pool

// buffer is a frame to send or a part of what was received: data[r:w].
type buffer struct {
	next  *buffer // in the list of what a stream received
	data  []byte
	r, w  int
	class int
}

func classFor(size int) int {
	for class, s := range sizes {
		if size <= s {
			return class
		}
	}
	return len(sizes) - 1
}

func (s *Session) get(class int) *buffer {
	s.held.Add(1)
	if b, ok := pools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{data: make([]byte, sizes[class]), class: class}
}

func (s *Session) put(b *buffer) {
	s.held.Add(-1)
	b.next, b.r, b.w = nil, 0, 0
	pools[b.class].Put(b)
}

// frame returns a buffer with room for a header and size bytes of payload.
func (s *Session) frame(class int) *buffer {
	b := s.get(class)
	b.w = headerSize
	return b
}

func (b *buffer) free() int { return len(b.data) - b.w }

func (b *buffer) append(p []byte) {
	b.w += copy(b.data[b.w:], p)
}
