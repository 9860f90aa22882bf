package mux_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/causewayproject/causeway/internal/mux"
)

const (
	data byte = iota
	window
	ping
	goAway
)

const (
	syn uint16 = 1 << iota
	ack
	fin
	rst
)

// frame is a frame as a peer writes or sees it.
type frame struct {
	kind    byte
	flags   uint16
	id      uint32
	length  uint32
	payload string
}

func header(kind byte, flags uint16, id, length uint32) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, id)
	return binary.BigEndian.AppendUint32(b, length)
}

func dataFrame(flags uint16, id uint32, payload string) []byte {
	return append(header(data, flags, id, uint32(len(payload))), payload...)
}

func readFrame(r io.Reader) (frame, error) {
	var b [12]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return frame{}, err
	}
	f := frame{
		kind:   b[1],
		flags:  binary.BigEndian.Uint16(b[2:]),
		id:     binary.BigEndian.Uint32(b[4:]),
		length: binary.BigEndian.Uint32(b[8:]),
	}
	if f.kind != data {
		return f, nil
	}
	payload := make([]byte, f.length)
	_, err := io.ReadFull(r, payload)
	f.payload = string(payload)
	return f, err
}

// peer is the other side of a session, frame by frame.
type peer struct {
	net.Conn
	t testing.TB
}

// rawPeer starts a Server whose client is the test.
func rawPeer(t testing.TB, c *mux.Config) (*mux.Session, peer) {
	t.Helper()
	a, b := net.Pipe()
	s := mux.Server(b, c)
	t.Cleanup(func() {
		a.Close()
		s.Close()
	})
	return s, peer{a, t}
}

func (p peer) send(frames ...[]byte) {
	p.t.Helper()
	for _, f := range frames {
		if _, err := p.Write(f); err != nil {
			p.t.Fatal(err)
		}
	}
}

// next is the next frame beside pings.
func (p peer) next() frame {
	p.t.Helper()
	for {
		f, err := readFrame(p)
		if err != nil {
			p.t.Fatal(err)
		}
		if f.kind != ping {
			return f
		}
	}
}

func (p peer) expect(want ...frame) {
	p.t.Helper()
	for _, w := range want {
		if got := p.next(); got != w {
			p.t.Fatalf("got frame %+v, want %+v", got, w)
		}
	}
}

// discard takes what the session sends, until the test ends.
func (p peer) discard() { go io.Copy(io.Discard, p) }
