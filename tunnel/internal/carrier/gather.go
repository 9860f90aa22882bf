package carrier

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// gatherer is what a carrier has below TLS. TLS writes a record at a time and
// reads little more than one: the gatherer makes large pieces of them.
type gatherer struct {
	net.Conn // the Transport's

	// gathering counts the calls of carrier.Write. What TLS sends outside of
	// them (handshakes, alerts) is sent at once.
	gathering atomic.Int32

	// writes keeps writes apart, as a conn's own lock does: it is held while
	// one blocks, and Close does without it.
	writes   socket.Mutex
	out      *[socket.BufferSize]byte // nil while nothing waits
	outLen   int
	writeErr error // of the first write that failed
	unsent   socket.UnsentLimit

	// place is where the carrier is until it is let in; nil otherwise. nested
	// says that another TLS on top counts what comes.
	place  *admission.Place
	nested bool

	// The reader's; TLS has one at a time.
	source  socket.Reader
	records admission.Records
}

func newGatherer(raw net.Conn) *gatherer {
	return &gatherer{Conn: raw, writes: socket.NewMutex(), unsent: socket.NewUnsentLimit(raw), source: socket.NewReader(raw)}
}

// errCut must not be io.ErrUnexpectedEOF itself: crypto/tls makes io.EOF of
// that where a record ends, and then a cut looks like an end.
var errCut = fmt.Errorf("the connection ended without the end of TLS: %w", io.ErrUnexpectedEOF)

func (s *gatherer) Read(p []byte) (int, error) {
	n, err := s.records.Read(&s.source, p, s.place, s.nested)
	if errors.Is(err, io.EOF) || err == io.ErrUnexpectedEOF {
		err = errCut
	}
	return n, err
}

// Write takes one record of TLS.
func (s *gatherer) Write(p []byte) (int, error) {
	s.writes.Lock()
	defer s.writes.Unlock()
	if s.outLen+len(p) > websocket.MaxPayload {
		s.flushLocked()
	}
	if s.writeErr != nil {
		return 0, s.writeErr
	}
	if len(p) > websocket.MaxPayload {
		return s.sendLocked(p)
	}
	if s.out == nil {
		s.out = socket.GetBuffer()
	}
	s.outLen += copy(s.out[s.outLen:], p)
	if s.gathering.Load() == 0 {
		s.flushLocked()
	}
	if s.writeErr != nil {
		return 0, s.writeErr
	}
	return len(p), nil
}

func (s *gatherer) flush() error {
	s.writes.Lock()
	defer s.writes.Unlock()
	s.flushLocked()
	return s.writeErr
}

func (s *gatherer) flushLocked() {
	if s.out == nil {
		return
	}
	if s.writeErr == nil {
		s.sendLocked(s.out[:s.outLen])
	}
	socket.PutBuffer(s.out)
	s.out, s.outLen = nil, 0
}

// sendLocked keeps the first error: after it nobody knows what the peer has.
func (s *gatherer) sendLocked(p []byte) (n int, err error) {
	if s.place != nil {
		s.place.Wait()
		s.place.Reach(admission.Greeting) // what was sent is an answer
	}
	n, err = s.Conn.Write(p)
	s.unsent.Wrote(n)
	if err != nil {
		s.writeErr = err
	}
	return n, err
}

// idle reports whether no write is under way.
func (s *gatherer) idle() bool {
	if !s.writes.TryLock() {
		return false
	}
	s.writes.Unlock()
	return true
}
