package mux

import "encoding/binary"

// A frame of yamux: version, type, flags, stream id, length, in network order.
const headerSize = 12

// A full frame is just under 64 KiB, so that it is one segment on loopback and
// other links of 64 KiB, and not one and a tail: the most that a segment of IPv4
// has room for beside its headers and time stamps, without what TLS 1.3 adds to
// each of four records. What is received is written on in no more than that.
const (
	loopbackSegment = 65535 - 20 - 32
	recordOverhead  = 5 + 1 + 16

	frameSize  = loopbackSegment - 4*recordOverhead
	maxPayload = frameSize - headerSize // of a data frame that we send
	smallFrame = 4 << 10                // up to it a frame shares a Write with others
)

// MaxFirst is how many bytes may travel with the opening of a stream.
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
	flagSpare // not yamux's, which ignores it: see window.go
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
