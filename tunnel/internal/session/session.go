// Package session is one end of a session of the tunnel, with an agent, a server or a
// replica on the other side: the control stream with its HELLO, the probes of a silent carrier, the
// drain and the end. SPEC.md, sections 3, 5 and 7, has the messages. Package tunnel
// says what a message means and which peer may begin a session: see [Role].
package session

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// LingerTimeout is how long the end that said the last word waits for the other
// one to hang up.
const LingerTimeout = 5 * time.Second

// messageTimeout is how long a control message may take to arrive once it has begun. One
// that may be longer than wire.MaxControl has as much time for each next piece.
const messageTimeout = 2 * time.Minute

// Codes of SPEC.md that this package resets streams with: package tunnel has all.
const (
	codeDraining uint32 = 8
	codeReset    uint32 = 10
	codeLost     uint32 = 130 // given up for another session
)

// errLeft is the cause of a session that this end has left in order.
var errLeft = errors.New("this end has left the session")

// Role is what differs between the four ends of a session: a server's
// end of an agent's session, the agent's end of that, and the two ends of a
// session between replicas. Its methods are called without a lock.
type Role interface {
	// HandleControl takes a message of the control stream. The next one is
	// read when it returns.
	HandleControl(m *wire.Message)
	// HandleRetired is called once, by Retire.
	HandleRetired()
	// HandleClosed is called once, as soon as the carrier is closed: streams,
	// and what Go started, may still be running. It must not wait.
	HandleClosed()
	// HandleEnd is called last, and once: nothing of the session runs any more.
	// The cause is the first of CloseWithCause, nil if the session ended in order.
	HandleEnd(cause error)
	// ShutdownCause is why the group ends the session.
	ShutdownCause() error
}

// Session is one end of a session: the multiplexer, its control stream and
// how it ends, in each of its roles. SPEC.md has the messages.
//
// The life of a session:
//
//	Begin     it belongs to its group, and control messages are sent
//	Serve     control messages and streams are taken
//	Retire    it takes no new streams. Once its last stream has ended, the end
//	          that dialed leaves: it ends the control stream after all else that
//	          it has to say, and the other end closes the carrier
//	finish    the control stream or the carrier ended: all is closed and waited for
//
// A session that is idle has no goroutine but the multiplexer's.
//
// Locks: mu is the innermost. It is held for the fields below it only, and nothing
// is called under it, so a role may hold a lock of its own when it calls a method
// that does not wait. CloseWithCause waits for the multiplexer.
type Session struct {
	Config
	Since  time.Time // when it was made
	outbox outbox    // of the control stream

	opening chan struct{} // a lock: one goroutine opens a stream; nil without Limit

	suspect atomic.Int64 // when the last probe failed, in ns after Since; zero: none did
	retired atomic.Bool  // takes no new streams

	work sync.WaitGroup // of Go

	mu       sync.Mutex // guards the fields below
	cause    error
	probing  *probe // the one under way
	finished bool   // Go starts nothing any more
}

// Config is what a Session is made of.
type Config struct {
	Role    Role
	Mux     *mux.Session
	Control *mux.Stream
	Group   *group.Group // which waits for the session, and may end it
	// Streams serves the streams that the other end opens; nil if it opens none.
	Streams *group.Group
	// Dialed: this end has dialed, and is the one that leaves.
	Dialed bool
	// Limit is how many streams this end may have open at once; zero: any number.
	Limit int
	Pace  *turns.Pace // of the control messages from the other end, and of Rest; nil: none
	// MaxMessage is how many bytes the body of a control message from the other end
	// may have; zero: wire.MaxControl.
	MaxMessage int
}

// Init makes the session: messages can be sent and streams opened. Begin and Serve
// have to follow, unless the caller closes Mux.
func (s *Session) Init(c Config) {
	s.Config, s.Since, s.outbox.control = c, time.Now(), c.Control
	if c.Limit > 0 {
		s.opening = make(chan struct{}, 1)
	}
}

// Begin has control messages sent, what was queued first, and makes the session a
// member of its group, which the caller has to be in. Serve has to follow.
func (s *Session) Begin() {
	s.Group.Add(s)
	s.outbox.start(s.CloseWithCause)
}

// EndWithGroup closes the session: it makes it a group.Member.
func (s *Session) EndWithGroup() { s.CloseWithCause(s.Role.ShutdownCause()) }

// Serve takes control messages, and the streams that the other end opens: each
// is given to serveStream, which may be nil if streams is. It returns at once.
func (s *Session) Serve(serveStream func(*mux.Stream)) {
	if serveStream != nil {
		s.Mux.Serve(func(stream *mux.Stream) { // the carrier's reader: it must not wait
			if !s.Streams.Go(func() { serveStream(stream) }) {
				stream.Reset(codeDraining)
			}
		})
	}
	s.awaitControl()
}

// awaitControl waits for a message without a goroutine: the multiplexer calls
// takeControl when one has come.
func (s *Session) awaitControl() { s.Control.AfterReadable(s.takeControl) }

// takeControl reads one message of the control stream, or its end. The next call
// comes after this one has returned, so messages are handled in their order.
func (s *Session) takeControl() {
	s.Control.SetReadDeadline(time.Now().Add(messageTimeout))
	var from io.Reader = s.Control
	if s.MaxMessage > wire.MaxControl {
		from = slowReader{s.Control}
	}
	m, err := wire.Read(from, cmp.Or(s.MaxMessage, wire.MaxControl))
	s.Control.SetReadDeadline(time.Time{}) // a timer would keep a session that has died in memory
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: it has begun and did not end for %v", wire.ErrMalformed, messageTimeout)
	}
	if err != nil {
		s.finish(err)
		return
	}
	if s.Rest(1) {
		s.Role.HandleControl(m)
	}
	s.awaitControl()
}

// Rest waits as long as Pace says for n more. It is false if the session ends meanwhile: what a flood has left
// is not handled.
func (s *Session) Rest(n int) bool {
	if s.Pace == nil {
		return true
	}
	wait := s.Pace.Take(n)
	select {
	case <-time.After(wait):
		return true
	case <-s.Mux.Done():
		return wait == 0
	}
}

// slowReader has messageTimeout for each piece.
type slowReader struct{ *mux.Stream }

func (r slowReader) Read(p []byte) (int, error) {
	r.SetReadDeadline(time.Now().Add(messageTimeout))
	return r.Stream.Read(p)
}

// finish closes the session and waits for all that belongs to it. The cause is the
// error of the control stream.
func (s *Session) finish(cause error) {
	defer s.Group.Remove(s)
	if err := s.Mux.Err(); err != nil && !errors.Is(cause, io.EOF) {
		cause = err // the error of the control stream only follows from it
	}
	s.CloseWithCause(cause)
	s.Control.Close() // nobody reads what is left in it
	s.CancelStreams()
	s.Role.HandleClosed()
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
	if s.Streams != nil {
		<-s.Streams.Idle()
	}
	s.work.Wait()
	s.outbox.close()
	s.Role.HandleEnd(s.UnexpectedCause())
}

// CancelStreams ends the dials that are under way for streams of the other end, which
// nobody waits for any more.
func (s *Session) CancelStreams() {
	if s.Streams != nil {
		s.Streams.Close()
		s.Streams.Cancel()
	}
}

// Go runs f in a goroutine that the end of the session waits for. It does nothing if
// the session has ended.
func (s *Session) Go(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.work.Go(f)
	}
}

// Retire takes no new streams. If this end has dialed, it leaves once the last stream
// has ended.
func (s *Session) Retire() {
	if s.retired.Swap(true) {
		return
	}
	if s.Streams != nil {
		s.Streams.Close()
	}
	s.Role.HandleRetired()
	if s.Dialed {
		s.Go(s.leaveWhenIdle)
	}
}

// leaveWhenIdle ends a retired session in order, unless something else ends it
// before.
func (s *Session) leaveWhenIdle() {
	ctx := s.Group.Context()
	if s.Streams != nil {
		<-s.Streams.Idle() // the end of the session ends streams too
		ctx = s.Streams.Context()
	}
	if ctx.Err() != nil {
		return
	}
	// The last bytes of the last stream may be waiting to be sent.
	if s.Mux.Settle(ctx, 1) != nil {
		return
	}
	s.recordCause(errLeft)
	s.outbox.finish()
	select {
	case <-s.Mux.Done():
	case <-time.After(LingerTimeout):
		s.CloseWithCause(errLeft)
	}
}

// CloseWithCause closes the carrier and resets the streams. Only the first cause is
// kept. The owner of a stream sees a reset, since net.ErrClosed would mean that the
// owner had closed it. It waits for the multiplexer.
func (s *Session) CloseWithCause(cause error) {
	s.Mux.CloseWithError(s.recordCause(cause))
}

// recordCause keeps the cause if it is the first, and returns the first.
func (s *Session) recordCause(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cause = cmp.Or(s.cause, cause)
	return s.cause
}

// UnexpectedCause returns the first cause. It is nil if the session has not ended, or
// has ended in order: this end has left, or, if it was dialed, has read the end of the
// control stream.
func (s *Session) UnexpectedCause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Dialed && errors.Is(s.cause, errLeft) || !s.Dialed && errors.Is(s.cause, io.EOF) {
		return nil
	}
	return s.cause
}

// Closed reports whether the carrier was closed.
func (s *Session) Closed() bool {
	select {
	case <-s.Mux.Done():
		return true
	default:
		return false
	}
}

// TakesStreams reports whether streams may be opened.
func (s *Session) TakesStreams() bool { return !s.retired.Load() && !s.Closed() }

// OpenStreams returns how many streams are open. Streams without an answer yet count,
// the control stream does not.
func (s *Session) OpenStreams() int { return max(s.Mux.Stats().Streams-1, 0) }

// Retired reports whether Retire was called.
func (s *Session) Retired() bool { return s.retired.Load() }

// Send queues a message for the control stream, and does not block. It returns false
// if the queue is full because the other end does not read.
func (s *Session) Send(m *wire.Message) bool { return s.outbox.add(m) }

// IsBehind reports whether messages wait because the other end does not read. Then there is
// no use in making answers for it.
func (s *Session) IsBehind() bool { return s.outbox.isBehind() }
