package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/internal/admission"
)

const (
	// maxStreams is how many streams a connection may have at once.
	maxStreams = 1000
	// connWindow is given back as it is received: a stream whose target is slow
	// must not stop the others. Until a stream is let in, the connection has
	// defaultWindow, and gets nothing back for what is kept.
	connWindow = 1 << 20
	// earlyWindow is what a stream may send that is not let in yet. A client that
	// hasn't seen the settings goes by defaultWindow.
	earlyWindow   = maxEarly
	defaultWindow = 1<<16 - 1
	maxWindow     = 1<<31 - 1
	// streamWindow is what a stream may send that is let in. With the chunk that
	// is being written, that is 64 KiB of memory if the target reads nothing.
	streamWindow = 48 << 10
	// largeWindow is for long lines. A stream gets it when its target has taken
	// largeAfter, which is more than the system keeps for one that does not read,
	// and while all windows of the connection have grown by less than maxGrown.
	largeWindow = 512 << 10
	largeAfter  = 8 << 20
	maxGrown    = 2 << 20
	// maxFrame is the largest payload of a frame that is read: what any endpoint
	// must take (RFC 9113, 4.2), and no more. Memory for it is taken as soon as
	// the frame's header is there.
	maxFrame = 16 << 10
	// maxPending is how many handlers a connection may have before a stream is let
	// in: no more is read until one has ended. And maxRefused is how many requests
	// may be refused by then: each may be a line of a log.
	maxPending = 16
	maxRefused = 100
	// maxResets is how many streams are remembered that were reset from here.
	maxResets = 64
	// maxQueue bounds the bytes of frames that wait for a client that asks much
	// (PING, SETTINGS) and reads nothing, and earlyQueue those for one that is not
	// let in yet.
	maxQueue   = 64 << 10
	earlyQueue = 8 << 10
	// idleHTTP2 closes a connection without a stream, once it has had one that
	// was let in.
	idleHTTP2 = 2 * time.Minute
	// cutTime is for a client that takes nothing, when all is cut.
	cutTime = 100 * time.Millisecond
)

// http2Conn is a connection that speaks HTTP/2 (RFC 9113). It is not net/http's:
// that one has no way to end the direction to the client and go on with the
// other one.
type http2Conn struct {
	*clientConn
	framer *http2.Framer
	wg     sync.WaitGroup // of the handlers and the sender

	// writeMu keeps frames apart, as a conn's own lock does: it is held while
	// a write blocks. It is taken before mu.
	writeMu sync.Mutex
	wakeups chan struct{} // tells the sender of a queue, or of the end

	mu            sync.Mutex // guards the fields below
	queue         bytes.Buffer
	queued        *http2.Framer // into queue
	encoder       *hpack.Encoder
	encoded       bytes.Buffer
	streams       map[uint32]*http2Stream
	handlers      int        // handlers
	handlerRoom   *sync.Cond // running has become less, or the first stream was let in
	refusals      int        // requests, while nobody is let in
	lastStream    uint32     // the last stream that the client has begun
	lastServed    uint32     // the last one that was looked at, for GOAWAY
	resets        [maxResets]uint32
	nextReset     int // in resets
	sendWindow    int64
	initialWindow int64 // the client's for a stream
	recvWindow    int   // what the client may send
	consumed      int   // and what it may send anew, and doesn't know of yet
	earlyBytes    int   // bytes of streams, while nobody is let in: see connWindow
	grownBytes    int   // what streams have beyond streamWindow
	settingsAcked bool  // our settings
	admitted      bool
	draining      bool
	err           error // why the connection has ended
}

// serveHTTP2 serves a connection from its preface on. Until a stream is let in,
// deadline is the end of a client that has none open.
func (c *clientConn) serveHTTP2() {
	c.awaitClient(admission.Greeting)
	h := &http2Conn{
		clientConn: c, wakeups: make(chan struct{}, 1),
		streams: map[uint32]*http2Stream{}, sendWindow: defaultWindow, initialWindow: defaultWindow,
		recvWindow: defaultWindow,
	}
	h.handlerRoom = sync.NewCond(&h.mu)
	h.queued = http2.NewFramer(&h.queue, nil)
	h.encoder = hpack.NewEncoder(&h.encoded)
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(c.early), c.conn), 16<<10)
	h.framer = http2.NewFramer(c.conn, r)
	h.framer.SetReuseFrames()
	h.framer.SetMaxReadFrameSize(maxFrame)
	h.framer.MaxHeaderListSize = uint32(orDefault(c.g.MaxHeader, 16<<10))
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.raw.SetWriteDeadline(time.Time{})
	h.wg.Go(h.sendLoop)
	c.mu.Lock()
	c.beforeReset = h.resetStreams
	c.mu.Unlock()
	drain := context.AfterFunc(c.group.Accepting(), h.startDrain)
	err := h.readFrames(r)
	drain()
	h.closeWith(err)
	if cause := c.displacedError(); cause != nil {
		c.request.recordFailure(PhaseHandshake, cause)
	}
}

// readFrames handles what comes until the connection ends.
func (h *http2Conn) readFrames(r io.Reader) error {
	hello := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, hello); err != nil {
		return err
	}
	if string(hello) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	h.queueFrames(func(f *http2.Framer) {
		f.WriteSettings(
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: earlyWindow},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: h.framer.MaxHeaderListSize})
	})
	for first := true; ; first = false {
		f, err := h.framer.ReadFrame()
		var stream http2.StreamError
		switch {
		case errors.As(err, &stream):
			h.resetStream(stream.StreamID, stream.Code)
			continue
		case errors.Is(err, http2.ErrFrameTooLarge):
			return http2.ConnectionError(http2.ErrCodeFrameSize)
		case err != nil:
			return err
		}
		if _, ok := f.(*http2.SettingsFrame); first && !ok {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if err := h.handleFrame(f); err != nil {
			return err
		}
	}
}

// closeWith closes the connection because of err, and waits for what it has started.
func (h *http2Conn) closeWith(err error) {
	code := http2.ErrCodeNo
	var broken http2.ConnectionError
	if errors.As(err, &broken) {
		code = http2.ErrCode(broken)
		h.request.recordFailure(PhaseHandshake, err)
	}
	h.mu.Lock()
	h.draining = true
	h.queued.WriteGoAway(h.lastServed, code, nil)
	h.err = &net.OpError{Op: "read", Net: "tcp", Addr: h.raw.RemoteAddr(), Err: syscall.ECONNRESET}
	for _, st := range h.streams {
		st.failLocked(h.err)
	}
	h.mu.Unlock()
	h.raw.SetWriteDeadline(time.Now().Add(lingerTime))
	if h.flushQueue() == nil && (errors.Is(err, os.ErrDeadlineExceeded) || code != http2.ErrCodeNo) {
		h.lingerClose()
	}
	h.raw.Close()
	h.wakeSender()
	h.wg.Wait()
}

// resetStreams tells the client that its streams are cut: after a GOAWAY some take the
// end of the connection, even a reset, for that of the streams.
func (h *http2Conn) resetStreams() {
	h.raw.SetWriteDeadline(time.Now().Add(cutTime))
	h.mu.Lock()
	for id, st := range h.streams {
		if st.endSent && st.endReceived {
			continue
		}
		h.queued.WriteRSTStream(id, http2.ErrCodeConnect)
	}
	h.mu.Unlock()
	h.flushQueue()
}

// startDrain lets no more streams in.
func (h *http2Conn) startDrain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return
	}
	h.draining = true
	h.handlerRoom.Signal()
	h.queued.WriteGoAway(h.lastServed, http2.ErrCodeNo, nil)
	h.wakeSender()
	if h.handlers == 0 {
		h.raw.SetReadDeadline(pastDeadline)
	}
}

// handlerStartedLocked counts a handler in.
func (h *http2Conn) handlerStartedLocked() {
	if h.handlers++; h.handlers == 1 {
		h.raw.SetReadDeadline(time.Time{})
	}
}

func (h *http2Conn) handlerDone(s *http2Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.large {
		h.grownBytes -= largeWindow - streamWindow
	}
	h.handlerRoom.Signal()
	if h.handlers--; h.handlers > 0 {
		return
	}
	switch {
	case h.draining:
		h.raw.SetReadDeadline(pastDeadline)
	case h.admitted:
		h.raw.SetReadDeadline(time.Now().Add(idleHTTP2))
	default:
		h.raw.SetReadDeadline(h.deadline)
	}
}

// queueFrames queues frames. They are sent in this order, and before the data that
// is written later.
func (h *http2Conn) queueFrames(write func(*http2.Framer)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	write(h.queued)
	h.wakeSender()
}

// wakeSender wakes the sender.
func (h *http2Conn) wakeSender() {
	select {
	case h.wakeups <- struct{}{}:
	default:
	}
}

// sendLoop writes what is queued, so that nobody who reads has to wait for it.
func (h *http2Conn) sendLoop() {
	for range h.wakeups {
		if h.flushQueue() != nil {
			h.raw.Close() // read sees it
			return
		}
		h.mu.Lock()
		ended := h.err != nil
		h.mu.Unlock()
		if ended {
			return
		}
	}
}

func (h *http2Conn) flushQueue() error {
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	return h.flushQueueLocked()
}

// flushQueueLocked is called with writeMu.
func (h *http2Conn) flushQueueLocked() error {
	h.mu.Lock()
	b := h.queue.Bytes()
	h.queue = bytes.Buffer{}
	h.mu.Unlock()
	if len(b) == 0 {
		return nil
	}
	_, err := h.conn.Write(b)
	return err
}
