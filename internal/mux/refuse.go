package mux

import (
	"io"
	"net"
)

// Refuse answers a [Client] that gets no session: it waits for the first stream
// that the client opens, and writes answer and the end on it. Nothing of what
// the client sends is kept, and no second stream is looked at: what still comes,
// until the client has read the answer and left, is the caller's to discard. Its
// errors are the carrier's, or a [*LostError] if this is no such client.
func Refuse(carrier net.Conn, answer []byte) error {
	var b [headerSize]byte
	for {
		if _, err := io.ReadFull(carrier, b[:]); err != nil {
			return err
		}
		h, err := parseHeader(b[:])
		switch {
		case err != nil:
			return err
		case h.kind == typePing:
			continue // any byte is a sign of life, and the answer is one
		case h.kind == typeGoAway, h.flags&flagSYN == 0, h.id%2 == 0:
			return protocolError("the client opens no stream")
		}
		return writeRefusal(carrier, h.id, answer)
	}
}

func writeRefusal(carrier net.Conn, id uint32, answer []byte) error {
	b := make([]byte, 2*headerSize+len(answer))
	header{kind: typeData, flags: flagACK, id: id, length: uint32(len(answer))}.put(b)
	copy(b[headerSize:], answer)
	header{kind: typeWindow, flags: flagFIN, id: id}.put(b[headerSize+len(answer):])
	if _, err := carrier.Write(b); err != nil {
		return err
	}
	if f, ok := carrier.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}
