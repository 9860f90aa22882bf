package bench

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
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
	rig.Process
	l    *listener
	sent atomic.Int64
}

func (t *targetRole) Start(_ rig.None, addr *string) (err error) {
	if t.l, err = listen(t.serve); err == nil {
		*addr = t.l.addr()
	}
	return err
}

// Sent is how many bytes were sent.
func (t *targetRole) Sent(_ rig.None, n *int64) error {
	*n = t.sent.Load()
	return nil
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
		// Its buffer is small: what it is asked to give back is small, and a
		// thousand of them are kept open.
		io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}, make([]byte, requestSize))
	case modeSource:
		if sendBytes(conn, size, &t.sent) == nil {
			conn.Read(head[:1])
		}
	case modeSink:
		if receiveBytes(conn, size) == nil {
			conn.Write(head[:1])
			conn.Read(head[:1])
		}
	case modeMeter:
		if rate, err := meterRate(conn); err == nil {
			binary.Write(conn, binary.BigEndian, rate)
			io.Copy(io.Discard, conn)
		}
	}
}

// sendBytes sends exactly so many bytes, and counts them in sent unless that is nil.
func sendBytes(conn net.Conn, size int64, sent *atomic.Int64) error {
	buf := make([]byte, endBuffer)
	for size > 0 {
		n, err := conn.Write(buf[:min(size, endBuffer)])
		if sent != nil {
			sent.Add(int64(n))
		}
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
