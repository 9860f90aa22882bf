package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
)

// A client's first bytes tell the target a mode, and how many bytes.
const (
	modeEcho   = 'e' // give back what comes
	modeSource = 's' // send so many bytes, and wait for the client's end
	modeSink   = 'k' // take so many bytes, and answer with one
	modeMeter  = 'm' // take what comes, and answer with its rate
	headerSize = 9
)

func targetHeader(mode byte, size int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{mode}, uint64(size))
}

// endBuffer is what the target and the client read and write with.
const endBuffer = 256 << 10

// A targetRole is what the agent dials.
type targetRole struct {
	l    *listener
	sent atomic.Int64
}

func (t *targetRole) handleRequest(_ context.Context, q request) (reply, error) {
	switch q.Op {
	case "start":
		var err error
		if t.l, err = listen(t.serve); err != nil {
			return reply{}, err
		}
		return reply{Addr: t.l.addr()}, nil
	case "sent":
		return reply{N: t.sent.Load()}, nil
	}
	return reply{}, errOp
}

func (t *targetRole) Close() error {
	if t.l == nil {
		return nil
	}
	return t.l.Close()
}

func (t *targetRole) serve(conn net.Conn) {
	var head [headerSize]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return
	}
	size := int64(binary.BigEndian.Uint64(head[1:]))
	switch head[0] {
	case modeEcho:
		t.echoBytes(conn)
	case modeSource:
		if t.sendBytes(conn, size) == nil {
			conn.Read(head[:1])
		}
	case modeSink:
		if receiveBytes(conn, size) == nil {
			conn.Write(head[:1])
			conn.Read(head[:1])
		}
	case modeMeter:
		if rate, err := meterRate(conn); err == nil {
			conn.Write(binary.BigEndian.AppendUint64(nil, uint64(rate)))
			io.Copy(io.Discard, conn)
		}
	}
}

// echoBytes has a small buffer: what it is asked to give back is small, and a
// thousand of them are kept open.
func (t *targetRole) echoBytes(conn net.Conn) {
	var buf [512]byte
	for {
		n, err := conn.Read(buf[:])
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (t *targetRole) sendBytes(conn net.Conn, size int64) error {
	buf := make([]byte, endBuffer)
	for size > 0 {
		n, err := conn.Write(buf[:min(size, endBuffer)])
		t.sent.Add(int64(n))
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// receiveBytes takes exactly so many bytes.
func receiveBytes(conn net.Conn, size int64) error {
	buf := make([]byte, endBuffer)
	for size > 0 {
		n, err := conn.Read(buf[:min(size, endBuffer)])
		size -= int64(n)
		if err != nil && size > 0 {
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}
