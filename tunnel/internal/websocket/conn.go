// Package websocket carries a stream of bytes in the binary messages of a
// WebSocket (RFC 6455): the handshake of a client and of a server, and a net.Conn.
package websocket

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// Opcodes of RFC 6455, section 5.2.
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

const (
	maxFrameHeader = 14
	maxControl     = 125 // bytes of a control frame

	// maxMessage is the size of a message, which is one frame, with its header. There are
	// gateways that take no more than 32 KiB.
	maxMessage = 16 << 10
	// MaxPayload is how much of a Write goes out in one piece: as many frames as fit into a
	// buffer with their headers.
	MaxPayload = socket.BufferSize - (socket.BufferSize/maxMessage+1)*maxFrameHeader
)

// Status codes of RFC 6455, section 7.4.1.
const (
	statusNormal    = 1000
	statusProtocol  = 1002
	statusWrongData = 1003
	statusBadText   = 1007
)

// statuses are the codes that a Close frame may have below 3000, with what they mean: those
// of the RFC, and of the registry that it names.
var statuses = map[uint16]string{
	statusNormal: "normal", 1001: "going away", statusProtocol: "protocol error", statusWrongData: "unsupported data",
	statusBadText: "invalid data", 1008: "policy violation", 1009: "message too big", 1010: "an extension is missing",
	1011: "internal error", 1012: "the service restarts", 1013: "try again later", 1014: "bad gateway",
}

// Conn sends and receives a stream of bytes in binary messages. Where a message
// ends means nothing, so a message of any length is read as it comes. Pings are
// answered while a Read is under way. A Close frame from the peer is io.EOF if it says
// nothing; else the error has its code and reason, and wraps io.ErrUnexpectedEOF.
//
// After a write that failed, every write returns its error: part of a frame may
// have been sent.
type Conn struct {
	net.Conn      // TCP or the outer TLS
	client   bool // this end masks what it sends, and its peer does not

	readMu     sync.Mutex // guards the fields below; held while a read blocks
	source     socket.Reader
	small      [256]byte
	in         []byte // what was read behind a header, in small or where the handshake left it
	left       uint64 // bytes of the current frame that have not been read
	key        [4]byte
	unfinished bool // the message goes on in another frame
	readErr    error

	writes   socket.Mutex // one frame after the other; held while a write blocks
	writer   *socket.Writer
	writeErr error

	mu      sync.Mutex // guards the fields below
	closed  bool
	status  uint16 // of the Close frame to send; zero: normal
	pinged  bool   // pong is to be sent
	pong    []byte // the payload of the last ping; earlier ones need no answer
	ponging bool   // a goroutine sends pongs
	pongs   sync.WaitGroup
}

var _ net.Conn = (*Conn)(nil)

// NewConn returns the WebSocket on conn after the handshake. early is what was
// read from conn behind the handshake.
func NewConn(conn net.Conn, client bool, early []byte) *Conn {
	return &Conn{Conn: conn, client: client, writes: socket.NewMutex(), writer: socket.NewWriter(conn), source: socket.NewReader(conn), in: early}
}

// Writer is for a carrier on top.
func (c *Conn) Writer() *socket.Writer { return c.writer }

// SetWriteDeadline says how long the network may take nothing.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.writer.SetWriteDeadline(t) }

// SetDeadline sets both.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// ReadsAhead marks a connection that reads ahead itself.
func (c *Conn) ReadsAhead() {}

// SetExact says whether only what is asked for may be read from below.
func (c *Conn) SetExact(exact bool) { c.source.Exact = exact }

func (c *Conn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for c.left == 0 && c.readErr == nil {
		if err := c.nextFrame(); err != nil {
			return 0, err
		}
	}
	if c.readErr != nil {
		return 0, c.readErr
	}
	if uint64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.readBelow(p)
	c.unmask(p[:n])
	c.left -= uint64(n)
	return n, err
}

// readBelow reads what was read ahead, and then from the connection below.
func (c *Conn) readBelow(p []byte) (int, error) {
	if len(c.in) == 0 {
		return c.readSource(p)
	}
	n := copy(p, c.in)
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil
	}
	return n, nil
}

var errNoClose = fmt.Errorf("websocket: the connection ended without a Close frame: %w", io.ErrUnexpectedEOF)

// readSource reads from the connection below. Its end is not the end of the
// WebSocket (RFC 6455, section 7.1.5). A TLS below may return either of two errors
// for it.
func (c *Conn) readSource(p []byte) (int, error) {
	n, err := c.source.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errNoClose
	}
	return n, err
}

// need reads until in has n bytes. It may be called again after a timeout: nothing
// is lost.
func (c *Conn) need(n int) error {
	for len(c.in) < n {
		have := copy(c.small[:], c.in)
		m, err := c.readSource(c.small[have:])
		c.in = c.small[:have+m]
		if err != nil && len(c.in) < n {
			return err
		}
	}
	return nil
}

// frame is the header of a frame.
type frame struct {
	final  bool
	opcode byte
	length uint64
	key    [4]byte
	size   int // of the header itself
}

// nextFrame reads a header, and the whole frame if it is a control frame.
func (c *Conn) nextFrame() error {
	f, err := c.readHeader()
	if err != nil {
		return err
	}
	if f.opcode >= opClose {
		return c.handleControl(f)
	}
	if first := f.opcode != opContinuation; first == c.unfinished {
		return c.violation(statusProtocol, "a message inside another, or a continuation of none")
	}
	c.in = c.in[f.size:]
	c.left, c.key, c.unfinished = f.length, f.key, !f.final
	return nil
}

// readHeader leaves the header in c.in.
func (c *Conn) readHeader() (f frame, err error) {
	if err := c.need(2); err != nil {
		return f, err
	}
	f = frame{final: c.in[0]&0x80 != 0, opcode: c.in[0] & 0x0f, length: uint64(c.in[1] & 0x7f), size: 2}
	masked := c.in[1]&0x80 != 0
	switch {
	case c.in[0]&0x70 != 0:
		return f, c.violation(statusProtocol, "reserved bits")
	case f.opcode > opPong, f.opcode > opBinary && f.opcode < opClose:
		return f, c.violation(statusProtocol, "unknown opcode %d", f.opcode)
	case f.opcode == opText:
		return f, c.violation(statusWrongData, "a text message")
	case masked == c.client:
		return f, c.violation(statusProtocol, "masked the wrong way")
	case f.opcode >= opClose && (f.length > maxControl || !f.final):
		return f, c.violation(statusProtocol, "a control frame that is too long or not whole")
	}
	switch f.length {
	case 126:
		f.size += 2
	case 127:
		f.size += 8
	}
	extended := f.size
	if masked {
		f.size += 4
	}
	if err := c.need(f.size); err != nil {
		return f, err
	}
	switch f.length {
	case 126:
		f.length = uint64(binary.BigEndian.Uint16(c.in[2:]))
	case 127:
		f.length = binary.BigEndian.Uint64(c.in[2:])
	}
	if f.length>>63 != 0 {
		return f, c.violation(statusProtocol, "a negative length")
	}
	copy(f.key[:], c.in[extended:f.size]) // zero if it is not masked
	return f, nil
}

// violation returns an error that every Read returns from then on. Close says the status.
func (c *Conn) violation(status uint16, format string, args ...any) error {
	c.setStatus(status)
	c.readErr = fmt.Errorf("websocket: the peer sent "+format, args...)
	return c.readErr
}

func (c *Conn) setStatus(status uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// handleClose ends the reading. The answer has the same code (RFC 6455, section 5.5.1).
func (c *Conn) handleClose(payload []byte) error {
	if len(payload) == 0 {
		c.readErr = io.EOF
		return c.readErr
	}
	if len(payload) == 1 {
		return c.violation(statusProtocol, "a Close frame of one byte")
	}
	code, reason := binary.BigEndian.Uint16(payload), payload[2:]
	meaning, known := statuses[code]
	switch {
	case !known && (code < 3000 || code >= 5000):
		return c.violation(statusProtocol, "a Close frame with the code %d", code)
	case !utf8.Valid(reason):
		return c.violation(statusBadText, "a Close frame whose reason is not UTF-8")
	}
	c.setStatus(code)
	c.readErr = io.EOF
	if code != statusNormal || len(reason) > 0 {
		text := fmt.Sprint(code)
		if known {
			text += " (" + meaning + ")"
		}
		if len(reason) > 0 {
			text += ": " + printable.Quote(string(reason))
		}
		c.readErr = fmt.Errorf("websocket: the other end, or a gateway, closed the connection: %s: %w", text, io.ErrUnexpectedEOF)
	}
	return c.readErr
}

func (c *Conn) handleControl(f frame) error {
	size := f.size + int(f.length)
	if err := c.need(size); err != nil {
		return err
	}
	payload := c.in[f.size:size:size]
	c.in = c.in[size:]
	maskPayload(payload, f.key)
	switch f.opcode {
	case opClose:
		return c.handleClose(payload)
	case opPing:
		c.answerPing(payload)
	}
	return nil
}

// unmask removes the mask from the next bytes of the current frame.
func (c *Conn) unmask(p []byte) {
	if c.client || len(p) == 0 {
		return
	}
	maskPayload(p, c.key)
	var turned [4]byte
	for i := range turned {
		turned[i] = c.key[(i+len(p))%4]
	}
	c.key = turned
}

// maskPayload masks p, or removes the mask: both are an XOR with the key.
func maskPayload(p []byte, key [4]byte) {
	if key == [4]byte{} {
		return
	}
	var pattern [512]byte
	for n := copy(pattern[:], key[:]); n < len(pattern) && n < len(p); n *= 2 {
		copy(pattern[n:], pattern[:n])
	}
	for len(p) > 0 {
		n := subtle.XORBytes(p, p, pattern[:])
		p = p[n:]
	}
}

// Write sends p in messages of at most 16 KiB, and many of them at once.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.writes.Lock()
	defer c.writes.Unlock()
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), MaxPayload)]
		if err = c.writeFramesLocked(opBinary, part); err == nil {
			n += len(part)
			p = p[len(part):]
		}
	}
	return n, err
}

// writeFramesLocked writes one frame at least. p has at most MaxPayload bytes.
func (c *Conn) writeFramesLocked(opcode byte, p []byte) error {
	if c.writeErr != nil {
		return c.writeErr
	}
	buf := socket.GetBuffer()
	defer socket.PutBuffer(buf)
	b := buf[:0]
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), maxMessage-maxFrameHeader)
		b = c.appendFrame(b, opcode, p[:n])
		p = p[n:]
	}
	if _, c.writeErr = c.writer.Write(b); c.writeErr == nil {
		c.writeErr = socket.Flush(c.Conn)
	}
	return c.writeErr
}

func (c *Conn) appendFrame(b []byte, opcode byte, p []byte) []byte {
	begin := len(b)
	b = append(b, 0x80|opcode)
	switch n := len(p); {
	case n <= maxControl:
		b = append(b, byte(n))
	default:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	}
	var key [4]byte
	if c.client {
		rand.Read(key[:])
		b[begin+1] |= 0x80
		b = append(b, key[:]...)
	}
	head := len(b)
	b = append(b, p...)
	maskPayload(b[head:], key)
	return b
}

// answerPing has a ping answered by a goroutine. If the reader did it, a peer that
// does not read would stop it.
func (c *Conn) answerPing(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.pong, c.pinged = append(c.pong[:0], payload...), true
	if !c.ponging {
		c.ponging = true
		c.pongs.Go(c.sendPongs)
	}
}

func (c *Conn) sendPongs() {
	var payload []byte
	for {
		c.writes.Lock()
		c.mu.Lock()
		done := !c.pinged || c.closed
		payload, c.pinged = append(payload[:0], c.pong...), false
		c.ponging = !done
		c.mu.Unlock()
		if !done {
			c.writeFramesLocked(opPong, payload)
		}
		c.writes.Unlock()
		if done {
			return
		}
	}
}

// Close sends a Close frame. If the peer reads nothing it gives up after 100 ms, or
// at once if a Write is blocked. Blocked calls return.
func (c *Conn) Close() error {
	c.mu.Lock()
	was, status, ponging := c.closed, cmp.Or(c.status, statusNormal), c.ponging
	c.closed = true
	c.mu.Unlock()
	if was {
		return net.ErrClosed
	}
	defer c.pongs.Wait()
	defer socket.CloseAfter(c.Conn, socket.CloseTimeout)()
	switch {
	case ponging: // a pong is short
		c.writes.Lock()
	case !c.writes.TryLock():
		socket.Innermost(c.Conn).Close()
		c.Conn.Close()
		return nil
	}
	c.writeFramesLocked(opClose, binary.BigEndian.AppendUint16(nil, status))
	c.writes.Unlock()
	if err := c.Conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
