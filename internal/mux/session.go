package mux

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/budget"
)

// Config says how a session behaves. The zero value is ready for use; a
// session keeps a copy.
type Config struct {
	// MaxStreams bounds the streams of the peer in three ways. If zero, it is
	// 4096.
	//
	//   - So many may be open at once. One more is reset with CodeTooMany.
	//   - So many may be handed over by Accept or Serve and not be closed or reset
	//     here yet, even if the peer has ended them. Further streams wait.
	//   - So many resets, at least 256, may wait to be sent. If the peer does not
	//     read them, nothing more is read from it.
	//
	// Whatever it is, no further stream is read while the ends of 512 of the peer's
	// streams wait to be sent.
	MaxStreams int

	// ProbeAfter is how long the peer may be silent before it gets a ping,
	// DeadAfter how long before the session ends. If zero, they are 10 and 30
	// seconds. A Server's ProbeAfter is 12 seconds then: its pings and the Client's
	// would cross. It is half of DeadAfter at most. A negative one switches its check
	// off. The sessions of a process are probed together, so one may get its ping an
	// eighth of ProbeAfter earlier.
	ProbeAfter, DeadAfter time.Duration

	// Budget bounds the buffers of all sessions that share it: what was received and not
	// read, and what was written and not sent. Nil: that of the process. Holder is who is on the other
	// side, for whom several sessions count as one; nil: only this one.
	Budget *budget.Budget
	Holder any
}

func (c *Config) maxStreams() int { return cmp.Or(max(c.MaxStreams, 0), 4096) }

func (c *Config) deadAfter() time.Duration { return cmp.Or(c.DeadAfter, 30*time.Second) }

func (s *Session) probeAfter() time.Duration {
	probe := cmp.Or(s.config.ProbeAfter, 12*time.Second)
	if s.client {
		probe = cmp.Or(s.config.ProbeAfter, 10*time.Second)
	}
	if dead := s.config.deadAfter(); probe > 0 && dead > 0 {
		return min(max(probe, time.Millisecond), dead/2) // an answer takes its time
	}
	return probe
}

// Session is one end of a carrier. Its methods are safe for concurrent use.
type Session struct {
	carrier net.Conn
	config  Config
	client  bool
	began   time.Time // what instants are measured from

	// Only readLoop uses these.
	reader       *bufio.Reader // nil while the carrier's Wait waits
	streamOpened bool          // the frame has opened a stream
	frames       uint8         // that were read; it overflows

	fillingSince atomic.Int64   // instant when a buffer was made for a payload; zero: all of it has come
	lastRead     atomic.Int64   // instant of the last byte from the carrier
	bytesHeld    atomic.Int64   // of buffers taken from the pools and not put back
	done         chan struct{}  // closed when err is set
	loops        sync.WaitGroup // the goroutines, and the call that closes the carrier

	mu                sync.Mutex // guards the fields below, and those of the streams
	err               error
	streams           map[uint32]*Stream
	bytesIn, bytesOut uint64 // payload
	nextID            uint64
	peerGone          bool // the peer takes no new streams
	settled           bool // Open opens no more streams
	serving           bool // a goroutine is calling serveFunc

	// Streams of the peer, from their SYN until Close or Reset is called here, and ending until
	// the end is sent.
	// incomingStreams bounds the open ones, handedOver the accepted ones. A peer
	// that opens and ends streams faster than they are closed here would pass the
	// first bound, and fill our memory, without the second.
	incomingStreams int           // open, or in acceptQueue
	acceptQueue     streamList    // not accepted yet
	unaccepted      int           // streams in acceptQueue
	unread          streamList    // with received bytes, also if the stream or the session has ended
	acceptReady     sync.Cond     // acceptQueue or handedOver has changed, or the session ended
	handedOver      int           // accepted, and not closed or reset here
	ending          int           // closed or reset here, and the end is not sent yet
	serveFunc       func(*Stream) // takes the streams instead of Accept; nil: Accept does
	ackQueue        streamList    // accepted, and not acknowledged yet
	ackTimer        *time.Timer   // nil until the first stream is accepted

	// Streams of ours.
	unsentSYNs  int       // streams whose SYN was not sent
	unacked     int       // streams that the peer has not acknowledged
	backlog     int       // bounds unacked; zero: nothing does
	openReady   sync.Cond // Open may go on, or has to return an error
	streamEnded sync.Cond // a stream was removed, or the session ended

	sender
	pinger
	own         share             // of key 0
	shares      map[uint64]*share // the others; nil until there is one
	grownTotal  int               // bytes by which windows exceed initialWindow
	reclaimedAt time.Duration     // instant of the last reclaimIdleLocked
	lastDirect  *Stream           // the last stream that writeDirectLocked was called for
}

// Client starts a session on carrier whose peer is a Server: one side each. A nil
// Config is a zero one. The session owns the carrier, whose Close must end a Read
// and a Write that block. The carrier may have more methods:
//
//   - Flush() error: Write may keep bytes back until Flush is called.
//   - Wait(idle func()): the reading goroutine calls it before Read. It returns
//     when Read has bytes or an error, and at once after a Read that failed. If
//     it has to wait, it calls idle first, which frees the read buffer.
//   - Progress() (taken, came time.Time): when the network last took bytes that had to wait,
//     and when it last brought some that can't be read yet. Both show that a silent peer is alive.
func Client(carrier net.Conn, c *Config) *Session { return newSession(carrier, c, true).startLoops() }

// Server starts the other side of a session on carrier.
func Server(carrier net.Conn, c *Config) *Session { return newSession(carrier, c, false).startLoops() }

func newSession(carrier net.Conn, c *Config, client bool) *Session {
	s := &Session{
		carrier:     carrier,
		client:      client,
		began:       time.Now(),
		done:        make(chan struct{}),
		streams:     map[uint32]*Stream{},
		nextID:      2,
		acceptQueue: streamList{kind: listAccept},
		ackQueue:    streamList{kind: listAck},
		unread:      streamList{kind: listUnread},
	}
	if c != nil {
		s.config = *c
	}
	s.config.Budget = cmp.Or(s.config.Budget, &budget.Process)
	s.config.Holder = cmp.Or(s.config.Holder, any(s))
	if client {
		s.nextID = 1
	}
	s.acquireReader()
	s.acceptReady.L, s.openReady.L, s.streamEnded.L = &s.mu, &s.mu, &s.mu
	s.sender.init(&s.mu)
	s.batch.s = s
	return s
}

func (s *Session) startLoops() *Session {
	s.mu.Lock()
	s.pinger.init(s)
	s.mu.Unlock()
	budget.Enter(s.config.Budget, s)
	s.loops.Go(s.readLoop)
	return s
}

// now returns the instant, as the time since the session started. It is never
// zero, so zero can mean "not yet".
func (s *Session) now() time.Duration { return time.Since(s.began) + 1 }

// closeWithCause ends the session because of err. Only the first call has an
// effect. Other calls don't wait for it.
func (s *Session) closeWithCause(err error) {
	if !s.recordCause(err) {
		return
	}
	defer s.loops.Done()
	if errors.Is(err, syscall.ETIMEDOUT) {
		// TCP would send a FIN only after the bytes that the peer doesn't acknowledge.
		abort.Reset(s.carrier, 0)
		return
	}
	s.carrier.Close()
}

// recordCause sets the session's error and wakes everybody who waits. It returns
// false if the session has ended before. Otherwise the caller must call
// loops.Done after it has closed the carrier.
func (s *Session) recordCause(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.err = err
	s.loops.Add(1) // loops is not zero: readLoop ends after this
	close(s.done)
	for _, timer := range []*time.Timer{s.pinger.timer, s.ackTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	for st := s.acceptQueue.pop(); st != nil; st = s.acceptQueue.pop() {
		s.dropReceivedLocked(st)
	}
	for _, st := range s.streams {
		s.removeStreamLocked(st)
	}
	s.acceptReady.Broadcast()
	s.openReady.Broadcast()
	s.streamEnded.Broadcast()
	s.writerWake.Broadcast()
	s.mayRead.Signal()
	s.leaveBudgetLocked()
	return true
}

// Close ends the session, its carrier and its streams, and waits for the session's
// goroutines. Bytes that were not sent or read yet are lost. Here the streams look
// closed. The peer's streams return a [LostError], unless they had ended.
func (s *Session) Close() error {
	s.closeWithCause(ErrSessionClosed)
	s.loops.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := s.unread.first; st != nil; {
		next := st.links[listUnread].next
		s.dropReceivedLocked(st)
		st = next
	}
	return nil
}

// CloseWithError is Close with a cause: the open streams and the session end with
// a [LostError] of it.
func (s *Session) CloseWithError(cause error) {
	s.closeWithCause(newLostError(cause))
	s.loops.Wait()
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns nil while the session lives, [ErrSessionClosed] after Close, and
// otherwise a [*LostError].
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stats says how a session is doing.
type Stats struct {
	Streams           int           // open streams
	BytesIn, BytesOut uint64        // payload so far
	RTT               time.Duration // of the latest ping; zero: unknown
	LastRead          time.Time     // when the peer last sent something; at first the session's start
}

// Stats returns a snapshot.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Streams:  len(s.streams),
		BytesIn:  s.bytesIn,
		BytesOut: s.bytesOut,
		RTT:      s.rtt,
		LastRead: s.began.Add(time.Duration(s.lastRead.Load())),
	}
}

// Settle waits until at most n streams are open. From then on Open returns
// ErrSettled, so that ending the session cuts no stream off. The data of the other
// streams, their ends included, reaches the peer before anything that is written
// after Settle. The errors are the session's and ctx's.
func (s *Session) Settle(ctx context.Context, n int) error {
	stop := s.broadcastAfter(ctx, &s.streamEnded)
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.err != nil:
			return s.err
		case len(s.streams) <= n:
			s.settled = true
			s.openReady.Broadcast()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		s.streamEnded.Wait()
	}
}
