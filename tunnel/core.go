package tunnel

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// lingerTimeout is how long the end that said the last word waits for the other
// one to hang up.
const lingerTimeout = 5 * time.Second

// errLeft is the cause of a session that this end has left in order.
var errLeft = errors.New("the agent left")

// sessionRole is what differs between the four ends of a session: a server's
// end of an agent's session, the agent's end of that, and the two ends of a
// session between replicas. Its methods are called without a lock.
type sessionRole interface {
	// handleControl takes a message of the control stream. The next one is
	// read when it returns.
	handleControl(m *wire.Message)
	// handleRetired is called once, by retire.
	handleRetired()
	// handleClosed is called once, as soon as the carrier is closed: streams,
	// and what runAttached started, may still be running. It must not wait.
	handleClosed()
	// handleEnd is called last, and once: nothing of the session runs any more.
	// The cause is the first of closeWithCause, nil if the session ended in order.
	handleEnd(cause error)
	// shutdownCause is why the end of the group's context ends the session.
	shutdownCause() error
}

// sessionCore is one end of a session: the multiplexer, its control stream and
// how it ends, whoever is on the other side. SPEC.md has the messages.
//
// The life of a session:
//
//	begin     it belongs to its group, and control messages are sent
//	serve     control messages and streams are taken
//	retire    it takes no new streams. Once its last stream has ended, the end
//	          that dialed leaves: it ends the control stream after all else that
//	          it has to say, and the other end closes the carrier
//	finish    the control stream or the carrier ended: all is closed and waited for
//
// A session that is idle has no goroutine but the multiplexer's.
//
// Locks: mu is held for the fields below it only, and nothing is called under it.
type sessionCore struct {
	mux     *mux.Session
	out     outbox // of the control stream
	role    sessionRole
	group   *group.Group // whose Context ends the session
	streams *group.Group // serves those that the other end opened; nil if it opens none
	since   time.Time
	dialed  bool          // by this end, which is the one that leaves
	limit   int           // of the streams that this end opens; zero: none
	opening chan struct{} // holds one, who opens a stream; nil without limit
	unwatch func() bool   // of the group's context

	suspect atomic.Int64 // unix nanoseconds of the last probe that failed; zero: none did
	retired atomic.Bool  // takes no new streams

	work sync.WaitGroup // of runAttached

	mu       sync.Mutex // guards the fields below
	cause    error
	probing  *probe // the one under way
	finished bool   // runAttached starts nothing any more
}

// begin has control messages sent, what was queued first, and the session ended
// with its group's context. The caller is in the group, which waits for the session
// from here on. Serve has to follow.
func (s *sessionCore) begin() {
	s.group.Stay()
	s.unwatch = context.AfterFunc(s.group.Context(), func() { s.closeWithCause(s.role.shutdownCause()) })
	s.out.start(s.closeWithCause)
}

// serve takes control messages, and the streams that the other end opens: each
// is given to serveStream, which may be nil if streams is. It returns at once.
func (s *sessionCore) serve(serveStream func(*mux.Stream)) {
	if serveStream != nil {
		s.mux.Serve(func(stream *mux.Stream) { // which must not wait
			if !s.streams.Go(func() { serveStream(stream) }) {
				stream.Reset(uint32(CodeDraining))
			}
		})
	}
	s.awaitControl()
}

// awaitControl has takeControl called when there is something to take.
func (s *sessionCore) awaitControl() { s.out.control.AfterReadable(s.takeControl) }

// takeControl takes a message of the control stream, or its end. One call
// follows the other.
func (s *sessionCore) takeControl() {
	m, err := wire.Read(s.out.control, wire.MaxBody)
	if err != nil {
		s.finish(err)
		return
	}
	s.role.handleControl(m)
	s.awaitControl()
}

// finish is the end of what begin and serve began. The cause is that of the
// control stream.
func (s *sessionCore) finish(cause error) {
	defer s.group.Leave()
	if err := s.mux.Err(); err != nil && !errors.Is(cause, io.EOF) {
		cause = err // and not what it means for the control stream
	}
	s.closeWithCause(cause)
	s.unwatch()
	s.cancelStreams()
	s.role.handleClosed()
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
	if s.streams != nil {
		<-s.streams.Idle()
	}
	s.work.Wait()
	s.out.close()
	s.role.handleEnd(s.unexpectedCause())
}

// cancelStreams ends the dials that are under way for streams of the other end:
// they are for nobody.
func (s *sessionCore) cancelStreams() {
	if s.streams != nil {
		s.streams.Close()
		s.streams.Cancel()
	}
}

// runAttached runs f in a goroutine that finish waits for, unless the session has
// finished.
func (s *sessionCore) runAttached(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.work.Go(f)
	}
}

// retire gives the session no new streams. If this end has dialed, it leaves once
// the last stream has ended.
func (s *sessionCore) retire() {
	if s.retired.Swap(true) {
		return
	}
	if s.streams != nil {
		s.streams.Close()
	}
	s.role.handleRetired()
	if s.dialed {
		s.runAttached(s.leaveWhenIdle)
	}
}

// leaveWhenIdle ends a retired session in order, unless something else ends it
// before.
func (s *sessionCore) leaveWhenIdle() {
	ctx := s.group.Context()
	if s.streams != nil {
		<-s.streams.Idle() // the end of the session ends streams too
		ctx = s.streams.Context()
	}
	if ctx.Err() != nil {
		return
	}
	// What the last stream had to say may be waiting to be sent.
	if s.mux.Settle(ctx, 1) != nil {
		return
	}
	s.recordCause(errLeft)
	s.out.finish()
	t := time.NewTimer(lingerTimeout)
	defer t.Stop()
	select {
	case <-s.mux.Done():
	case <-t.C:
		s.closeWithCause(errLeft)
	}
}

// closeWithCause closes the carrier and resets the streams; the first cause counts.
// To the owner of a stream it is a reset: net.ErrClosed would say that the owner
// closed the stream. It waits for the multiplexer.
func (s *sessionCore) closeWithCause(cause error) {
	s.mux.CloseWithError(s.recordCause(cause))
}

// recordCause returns the first cause that was recorded.
func (s *sessionCore) recordCause(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
	}
	return s.cause
}

// unexpectedCause returns why the session ended; nil if it has not, or in order:
// the end that dialed left, and the other one saw the end of the control stream.
func (s *sessionCore) unexpectedCause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialed && errors.Is(s.cause, errLeft) || !s.dialed && errors.Is(s.cause, io.EOF) {
		return nil
	}
	return s.cause
}

// closed reports whether the carrier is.
func (s *sessionCore) closed() bool { return isClosed(s.mux.Done()) }

// takesStreams reports whether streams may be opened.
func (s *sessionCore) takesStreams() bool { return !s.retired.Load() && !s.closed() }

// openStreams is how many streams are open, those whose dial was not answered yet
// included, and the control stream not.
func (s *sessionCore) openStreams() int { return max(s.mux.Stats().Streams-1, 0) }
