package mux

import "encoding/binary"

// A frame of yamux: version, type, flags, stream id, length, in network order.
const headerSize = 12

const (
	frameSize  = 64 << 10               // of a full frame: four full TLS records
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
)

// Codes of a GoAway frame.
const (
	goAwayNormal uint32 = iota
	goAwayProtocol
	goAwayInternal
)

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
