package gateway

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// A frame that brings nothing costs the allowance of its connection. A connection without allowance
// ends (ENHANCE_YOUR_CALM).
//
//	a frame                                              costs
//	DATA without data or without a stream, RST_STREAM    1
//	HEADERS that begin no stream                         1
//	HEADERS of one stream more than maxStreams           idlePerStream
//	SETTINGS                                             idleSettings, and 1 for each 256 bytes
//	others (WINDOW_UPDATE, PING, CONTINUATION, ...)      1, and 1 for each 256 bytes
//
//	what brings something                                gives back
//	a stream that was answered                           idlePerStream
//	DATA that is sent: its windows have to be opened     idlePerData
//	a KiB of DATA that is received, 32 bytes of sent     1
//	a second                                             idleRate
const (
	// idleStart is enough for a client that gives up maxStreams at once, each with an END_STREAM and a
	// reset, and begins as many too early.
	idleStart = 4000
	// idleFree is for the beginning of each connection.
	idleFree = 200
	// idleMost is the largest allowance. A client that reads what the system has buffered for it
	// may send thousands of WINDOW_UPDATE at once.
	idleMost      = 10_000
	idleRate      = 100
	idlePerStream = 16
	idlePerData   = 4
	// idleSettings is more than the others because SETTINGS may wake all streams.
	idleSettings = 50
)

var errIdle = calmError("too many frames bring nothing")

// calmError is a connection error with its reason.
func calmError(reason string) error {
	return fmt.Errorf("%s: %w", reason, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm))
}

const frameHeader = 9 // bytes (RFC 9113, 4.1)

// frameMeter is between a connection and the Framer. One goroutine uses it, except for useful.
type frameMeter struct {
	io.Reader
	useful atomic.Int64 // what was given back, and is not in left yet

	left    int // the allowance
	least   int // the least that was left: spent has returned the rest
	at      time.Time
	header  [frameHeader]byte
	have    int // bytes of header
	payload int // bytes that are still to come of the frame
}

// Read reads a header or a payload, as the Framer does.
func (m *frameMeter) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if m.payload > 0 {
		m.payload -= n
		return n, err
	}
	m.have += copy(m.header[m.have:], p[:n])
	if m.have < frameHeader {
		return n, err
	}
	m.have, m.payload = 0, int(binary.BigEndian.Uint32(m.header[:])>>8)
	if calm := m.take(m.cost()); calm != nil {
		return 0, calm
	}
	return n, err
}

// cost returns what the frame costs whose header has come.
func (m *frameMeter) cost() int {
	switch http2.FrameType(m.header[3]) {
	case http2.FrameData:
		if m.payload == 0 {
			return 1
		}
		m.useful.Add(int64(m.payload >> 10))
		return 0
	case http2.FrameHeaders:
		return 0
	case http2.FrameSettings:
		return idleSettings + m.payload>>8
	}
	return 1 + m.payload>>8
}

// spent returns by how much the allowance is less than it ever was at a call before.
func (m *frameMeter) spent() (n int) {
	m.giveBack(0)
	n = max(0, m.least-m.left)
	m.least -= n
	return n
}

// take takes n of the allowance.
func (m *frameMeter) take(n int) error {
	if m.left -= n; m.left >= 0 {
		return nil
	}
	now := time.Now()
	m.giveBack(int64(min(idleRate*now.Sub(m.at).Seconds(), idleMost)))
	if m.at = now; m.left < 0 {
		return errIdle
	}
	return nil
}

// giveBack adds n and what was useful to the allowance.
func (m *frameMeter) giveBack(n int64) {
	m.left = int(min(int64(m.left)+m.useful.Swap(0)+n, idleMost))
}
