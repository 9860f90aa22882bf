package mux

import (
	"encoding/binary"
	"slices"
	"sync"
)

// headerSize is the size of a frame's header (yamux's spec, "Framing"): version
// and type of one byte each, flags of two, stream id and length of four, in
// network order.
const headerSize = 12

// A full frame, with what TLS 1.3 adds to its four records, fits into one TCP
// segment on loopback and other links with an MTU of 64 KiB. A larger frame would
// be sent as one segment and a small rest. Received bytes are passed on in pieces
// of at most this size.
const (
	loopbackSegment = 65535 - 20 - 32
	recordOverhead  = 5 + 1 + 16

	frameSize  = loopbackSegment - 4*recordOverhead
	maxPayload = frameSize - headerSize // of a data frame that we send
	smallFrame = 4 << 10                // frames up to this size share a Write
)

// MaxFirst is how many bytes [Session.Open] may send with the opening of a stream.
const MaxFirst = maxPayload

const (
	typeData byte = iota
	typeWindow
	typePing
	typeGoAway
)

const (
	flagSYN uint16 = 1 << iota
	flagACK
	flagFIN
	flagRST
	flagUnused // ours, ignored by other implementations: see window.go
)

// goAwayNormal is the code of a GoAway frame that is no error.
const goAwayNormal = 0

type header struct {
	kind   byte
	flags  uint16
	id     uint32
	length uint32
}

func (h header) put(b []byte) {
	_ = b[headerSize-1]
	b[0] = 0
	b[1] = h.kind
	binary.BigEndian.PutUint16(b[2:], h.flags)
	binary.BigEndian.PutUint32(b[4:], h.id)
	binary.BigEndian.PutUint32(b[8:], h.length)
}

func parseHeader(b []byte) (header, error) {
	_ = b[headerSize-1]
	if b[0] != 0 {
		return header{}, protocolError("version %d", b[0])
	}
	if b[1] > typeGoAway {
		return header{}, protocolError("frame type %d", b[1])
	}
	return header{
		kind:   b[1],
		flags:  binary.BigEndian.Uint16(b[2:]),
		id:     binary.BigEndian.Uint32(b[4:]),
		length: binary.BigEndian.Uint32(b[8:]),
	}, nil
}

// sizes are the sizes of the pooled buffers, by class. From 4 KiB on each is twice
// the one before, so received bytes take at most twice their size in memory.
var sizes = [...]int{512, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10}

const (
	classSmall  = 1
	classGather = 3
)

// pools are shared by all sessions, so that an idle session holds no buffers.
var pools [len(sizes)]sync.Pool

// buffer is a frame to send, or received payload. Its content is data[r:w].
type buffer struct {
	next  *buffer // in the stream's list of received buffers
	data  []byte
	r, w  int
	class int
}

// classFor returns the smallest class with room for size bytes, or the largest.
func classFor(size int) int {
	class, _ := slices.BinarySearch(sizes[:], size)
	return min(class, len(sizes)-1)
}

func (s *Session) getBuffer(class int) *buffer {
	s.holdMore(sizes[class])
	if b, ok := pools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{data: make([]byte, sizes[class]), class: class}
}

func (s *Session) putBuffer(b *buffer) {
	s.holdMore(-sizes[b.class])
	b.next, b.r, b.w = nil, 0, 0
	pools[b.class].Put(b)
}

// getFrame returns a buffer of the class, with room left for the header.
func (s *Session) getFrame(class int) *buffer {
	b := s.getBuffer(class)
	b.w = headerSize
	return b
}

func (b *buffer) freeSpace() int { return len(b.data) - b.w }

func (b *buffer) append(p []byte) {
	b.w += copy(b.data[b.w:], p)
}
