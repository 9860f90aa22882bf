package mux

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

// Config says how a session behaves. The zero value is ready for use; a
// session keeps a copy.
type Config struct {
	// MaxStreams is how many streams that the peer opened may be open at once.
	// One more is reset with CodeTooMany. As many may be handed over (by Accept
	// or Serve) and not be closed or reset here yet, whether the peer has ended
	// them or not: others wait until one is. Of a peer that causes as many resets
	// again, at least 256, and reads none, no more is read. If zero, it is 4096.
	MaxStreams int

	// ProbeAfter is how long nothing may come from the peer before it is asked
	// for a sign of life, DeadAfter how long before the session ends. If zero,
	// they are 10 and 30 seconds; if negative, it isn't done.
	ProbeAfter, DeadAfter time.Duration
}

func (c *Config) maxStreams() int {
	if c.MaxStreams > 0 {
		return c.MaxStreams
	}
	return 4096
}

func (c *Config) probeAfter() time.Duration { return orDefault(c.ProbeAfter, 10*time.Second) }
func (c *Config) deadAfter() time.Duration  { return orDefault(c.DeadAfter, 30*time.Second) }

func orDefault(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}

// Session is one end of a carrier. All methods are safe for concurrent use.
type Session struct {
	carrier net.Conn
	config  Config
	client  bool
	began   time.Time // what instants are measured from

	reader   *bufio.Reader // readLoop's, nil while that waits in a waiter
	came     bool          // readLoop's: the frame has opened a stream
	lastRead atomic.Int64  // instant of the last byte from the carrier
	held     atomic.Int64  // buffers taken from the pools and not given back

	done  chan struct{}  // closed when err is set
	loops sync.WaitGroup // and who closes the carrier

	mu       sync.Mutex // guards the fields below, and those of the streams
	err      error
	streams  map[uint32]*Stream
	opened   uint64
	in, out  uint64 // bytes of payload
	nextID   uint64
	peerGone bool // the peer takes no new streams
	settled  bool // we open none

	incoming int           // streams of the peer that are open or not accepted yet
	accept   list          // not accepted yet
	accepts  sync.Cond     // a stream came, or there is room for it, or the session ended
	accepted int           // streams that were handed over, until they are closed here
	serve    func(*Stream) // in the place of Accept, if not nil
	serving  bool          // somebody calls it
	acks     list          // accepted, to be acknowledged
	ackTimer *time.Timer   // nil until the first
	unsent   int           // opened streams whose SYN was not sent
	opens    sync.Cond     // there is room for one more
	ends     sync.Cond     // a stream is gone, or the session ended

	sender
	pinger
	grown     int           // bytes by which windows exceed their initial size
	reclaimed time.Duration // instant when idle streams were last asked for theirs
	delivered *Stream       // the last that something could be delivered to at once
}

// Client starts a session on carrier whose peer is a Server: one side each.
// The session owns the carrier, whose Close has to end a Read and a Write that
// block. If the carrier has a method Flush() error, its Write may keep bytes
// back until Flush is called. If it has a method Wait(idle func()), that is
// called before a Read, by who calls that: it returns when Read has something
// or an error, or at once, as it has to after a Read that returned an error,
// and calls idle if it really waits. A nil Config is a zero one.
func Client(carrier net.Conn, c *Config) *Session { return newSession(carrier, c, true).start() }

// Server starts the other side of a session.
func Server(carrier net.Conn, c *Config) *Session { return newSession(carrier, c, false).start() }

func newSession(carrier net.Conn, c *Config, client bool) *Session {
	s := &Session{
		carrier: carrier,
		client:  client,
		began:   time.Now(),
		done:    make(chan struct{}),
		streams: map[uint32]*Stream{},
		nextID:  2,
		accept:  list{kind: listAccept},
		acks:    list{kind: listAck},
	}
	if c != nil {
		s.config = *c
	}
	if client {
		s.nextID = 1
	}
	s.takeReader()
	s.accepts.L, s.opens.L, s.ends.L = &s.mu, &s.mu, &s.mu
	s.sender.init(&s.mu)
	s.batch.s = s
	return s
}

func (s *Session) start() *Session {
	s.mu.Lock()
	s.pinger.init(s)
	s.mu.Unlock()
	s.loops.Go(s.readLoop)
	return s
}

// now is the instant: how long the session has been there. It is never zero.
func (s *Session) now() time.Duration { return time.Since(s.began) + 1 }

// fail ends the session because of err. Only the first call counts; the others
// do not wait for it.
func (s *Session) fail(err error) {
	if !s.failed(err) {
		return
	}
	defer s.loops.Done()
	if errors.Is(err, syscall.ETIMEDOUT) {
		// An end would wait behind what the peer doesn't acknowledge.
		abort.Reset(s.carrier, 0)
		return
	}
	s.carrier.Close()
}

// failed reports whether the session ends by this call. Then loops waits for
// the caller.
func (s *Session) failed(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.err = err
	s.loops.Add(1) // readLoop, which ends after this, is one of them
	close(s.done)
	s.pinger.stop()
	if s.ackTimer != nil {
		s.ackTimer.Stop()
	}
	for st := s.accept.pop(); st != nil; st = s.accept.pop() {
		s.dropReceivedLocked(st)
	}
	for _, st := range s.streams {
		s.forgetLocked(st)
	}
	s.accepts.Broadcast()
	s.opens.Broadcast()
	s.ends.Broadcast()
	s.wake.Broadcast()
	s.refusing.Signal()
	return true
}

// Close ends the session with its carrier and streams; what was written and
// not sent yet is lost. To the streams it is as if each was closed. It waits for
// the session's goroutines. The peer sees a [LostError] on its streams, unless
// they had ended.
func (s *Session) Close() error {
	s.fail(ErrSessionClosed)
	s.loops.Wait()
	return nil
}

// CloseWithError is Close with a cause: the streams that are open, and the session,
// end with a [LostError] of it.
func (s *Session) CloseWithError(cause error) {
	s.fail(lost(cause))
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
	Streams           int           // that are open
	Opened            uint64        // since the beginning, by both sides
	BytesIn, BytesOut uint64        // payload
	RTT               time.Duration // of the latest ping; zero: unknown
	LastRead          time.Time     // when something came from the peer; at first the session's beginning
}

// Stats returns a snapshot.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Streams:  len(s.streams),
		Opened:   s.opened,
		BytesIn:  s.in,
		BytesOut: s.out,
		RTT:      s.rtt,
		LastRead: s.began.Add(time.Duration(s.lastRead.Load())),
	}
}
