package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/budget"
)

const (
	// maxStreams is how many streams a connection may have at once
	// (SETTINGS_MAX_CONCURRENT_STREAMS).
	maxStreams = 1000

	// Flow control (RFC 9113, 5.2 and 6.9). There are two windows for what the
	// client sends: one of the connection and one of each stream.
	//
	// connWindow is the connection's. It is given back when DATA arrives, not when
	// a target has read it: a stream whose target is slow must not stop the others.
	// Until a stream is let in, the connection has defaultWindow, and gets nothing
	// back.
	connWindow = 1 << 20
	// earlyWindow is what a stream may send before it is let in. A client that has
	// not seen our SETTINGS uses defaultWindow, the protocol's initial value.
	earlyWindow   = maxEarly
	defaultWindow = 1<<16 - 1
	maxWindow     = 1<<31 - 1
	// streamWindow is what a stream may send after it is let in. With the chunk
	// that is being written, that is 64 KiB of memory if the target reads nothing.
	streamWindow = 48 << 10
	// largeWindow serves connections of high bandwidth and delay. A stream gets it
	// when its target has read largeAfter, which is more than the system buffers
	// for a target that does not read, and while all windows of the connection have
	// grown by less than maxGrown.
	largeWindow = 512 << 10
	largeAfter  = 8 << 20
	maxGrown    = 2 << 20
	// maxFrame is the largest payload of a frame that is read: the least that an
	// endpoint must accept (RFC 9113, 4.2). Its memory is allocated as soon as the
	// frame's header has come.
	maxFrame = 16 << 10
	// maxPending is how many handlers a connection may have before a stream is let
	// in: with as many, nothing is read until one has returned. maxRefused is how
	// many requests may be refused until then, as each may be a line of a log.
	maxPending = 1
	maxRefused = 100
	// maxResets is how many of the streams are remembered that we have reset.
	maxResets = 64
	// maxQueue bounds the bytes of the frames that wait to be sent: a client may
	// ask much (PING, SETTINGS) and read nothing. earlyQueue bounds them until a
	// stream is let in.
	maxQueue   = 64 << 10
	earlyQueue = 8 << 10
	// idleHTTP2 is how long a connection stays open without a stream, after one that was
	// connected. Those that are refused don't lengthen its life.
	idleHTTP2 = 2 * time.Minute
	// yieldFrames is after how many frames of a connection others have their turn: what it has sent is
	// read at once, and may be a thousand frames.
	yieldFrames = 64
	// cutTime bounds the write of resets when a connection is cut.
	cutTime = 100 * time.Millisecond
)

// http2Conn is an HTTP/2 connection (RFC 9113) whose streams are CONNECT requests
// (8.5). net/http's server can't be used: it cannot end the direction to the client
// (END_STREAM) and go on with the other one.
//
// One goroutine reads frames and handles them (http2frames.go), one sends the queued
// control frames, and each stream has a handler (http2stream.go). The handlers
// write DATA themselves. Errors are as in RFC 9113, 5.4: an error of handleFrame is
// a connection error, which ends all streams by GOAWAY; resetIDLocked is a stream
// error, which sends RST_STREAM.
//
// A stranger, a client without a stream that was let in, may cost at most:
// maxPending handlers with maxEarly of data each, defaultWindow of data over all
// streams, earlyQueue of answers, maxRefused refusals, frames that bring nothing as
// http2idle.go says, and the time of the handshake, unless Authenticate takes longer.
type http2Conn struct {
	*clientConn
	framer *http2.Framer
	meter  *frameMeter    // of what the framer reads
	wg     sync.WaitGroup // the handlers and the sender

	// writeMu keeps the frames of different goroutines apart. It is held while a
	// write blocks, and is taken before mu.
	writeMu sync.Mutex
	wakeups chan struct{} // wakes sendLoop: there is a queue, or the connection has ended

	mu            sync.Mutex // guards the fields below
	queue         bytes.Buffer
	queueHeld     int           // what the Budget counts of it
	flushedAt     time.Time     // when the queue was last empty
	queued        *http2.Framer // into queue
	encoder       *hpack.Encoder
	encoded       bytes.Buffer
	streams       map[uint32]*http2Stream
	handlers      int        // handlers
	handlerRoom   *sync.Cond // running has become less, or the first stream was let in
	refusals      int        // requests, while nobody is let in
	lastStream    uint32     // the last stream that the client has begun
	lastServed    uint32     // the last one that was handled, for GOAWAY
	resets        [maxResets]uint32
	nextReset     int // in resets
	sendWindow    int64
	initialWindow int64                     // the client's for a stream
	mostCredit    int64                     // no stream has a larger credit
	waiting       map[*http2Stream]struct{} // for sendWindow
	blocked       map[*http2Stream]struct{} // for their own windows
	recvWindow    int                       // what the client may send
	consumed      int                       // what it may send in addition once WINDOW_UPDATE says so
	grownBytes    int                       // windows of streams beyond streamWindow
	idleEnd       time.Time                 // when the connection ends that has no stream
	settingsAcked bool                      // the client has acknowledged our SETTINGS
	admitted      bool
	holder        any // the client, once it is admitted
	draining      bool
	err           error // why the connection has ended
}

// serveHTTP2 serves a connection from its preface on (RFC 9113, 3.4). Until a stream
// is let in, a connection without a stream ends at the deadline.
func (c *clientConn) serveHTTP2() {
	c.awaitClient(admission.Greeting)
	h := &http2Conn{
		clientConn: c, wakeups: make(chan struct{}, 1),
		idleEnd: c.deadline, streams: map[uint32]*http2Stream{}, sendWindow: defaultWindow, initialWindow: defaultWindow,
		recvWindow: defaultWindow, waiting: map[*http2Stream]struct{}{}, blocked: map[*http2Stream]struct{}{},
	}
	h.holder, h.handlerRoom = h, sync.NewCond(&h.mu)
	h.queued = http2.NewFramer(&h.queue, nil)
	h.encoder = hpack.NewEncoder(&h.encoded)
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(c.early), c.conn), 16<<10)
	h.meter = &frameMeter{Reader: r, left: idleStart, least: idleStart - idleFree, at: time.Now()}
	h.framer = http2.NewFramer(c.conn, h.meter)
	h.framer.SetReuseFrames()
	h.framer.SetMaxReadFrameSize(maxFrame)
	h.framer.MaxHeaderListSize = uint32(cmp.Or(c.g.MaxHeader, 16<<10))
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.raw.SetWriteDeadline(time.Time{})
	h.wg.Go(h.sendLoop)
	budget.Enter(c.g.budget(), h)
	defer budget.Leave(c.g.budget(), h)
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

// readFrames reads and handles frames until the connection ends. The first one must
// be SETTINGS (RFC 9113, 3.4).
func (h *http2Conn) readFrames(r io.Reader) error {
	hello := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, hello); err != nil {
		return err
	}
	if string(hello) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	h.mu.Lock()
	h.queued.WriteSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: earlyWindow},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: h.framer.MaxHeaderListSize})
	h.wakeSender()
	h.mu.Unlock()
	defer func() {
		if n := h.meter.spent(); n > 0 {
			h.g.accounts.waste(h.accountKey(), n)
		}
	}()
	for n := 0; ; n++ {
		if n%yieldFrames == 0 {
			if spent := h.meter.spent(); spent > 0 {
				h.g.rest(h.group.Context(), h.accountKey(), spent)
			}
			runtime.Gosched()
		}
		f, err := h.framer.ReadFrame()
		var stream http2.StreamError
		switch {
		case errors.As(err, &stream):
			h.mu.Lock()
			h.resetIDLocked(stream.StreamID, stream.Code)
			err := cmp.Or(h.checkLimitsLocked(), h.meter.take(1))
			h.mu.Unlock()
			if err != nil {
				return err
			}
			continue
		case errors.Is(err, http2.ErrFrameTooLarge):
			return http2.ConnectionError(http2.ErrCodeFrameSize)
		case err != nil:
			return err
		}
		if _, ok := f.(*http2.SettingsFrame); n == 0 && !ok {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if err := h.handleFrame(f); err != nil {
			return err
		}
	}
}

// closeWith closes the connection because of err, with a GOAWAY (RFC 9113, 6.8), and
// waits for its goroutines.
func (h *http2Conn) closeWith(err error) {
	code, reason := http2.ErrCodeNo, ""
	if broken, ok := errors.AsType[http2.ConnectionError](err); ok {
		code = http2.ErrCode(broken)
		h.recordBroken(code, err)
		if code == http2.ErrCodeEnhanceYourCalm {
			reason = err.Error()
		}
	}
	h.mu.Lock()
	h.draining = true
	h.queued.WriteGoAway(h.lastServed, code, []byte(reason))
	h.err = &net.OpError{Op: "read", Net: "tcp", Addr: h.raw.RemoteAddr(), Err: syscall.ECONNRESET}
	for _, st := range h.streams {
		st.failLocked(h.err)
	}
	budget.Add(h.g.budget(), -h.queueHeld)
	h.mu.Unlock()
	h.raw.SetWriteDeadline(time.Now().Add(lingerTime))
	if h.flushQueue() == nil && (errors.Is(err, os.ErrDeadlineExceeded) || code != http2.ErrCodeNo) {
		h.lingerClose()
	}
	h.raw.Close()
	h.wakeSender()
	h.wg.Wait()
}

// recordBroken records why the connection ends, and whose it is.
func (h *http2Conn) recordBroken(code http2.ErrCode, err error) {
	phase := PhaseHandshake
	h.mu.Lock()
	if h.admitted && code == http2.ErrCodeEnhanceYourCalm {
		phase = PhaseLimit
	}
	h.request.request.Client, _ = h.holder.(Identity)
	h.mu.Unlock()
	h.request.recordFailure(phase, err)
}

// resetStreams sends RST_STREAM for all streams before the connection is cut. After
// a GOAWAY, some clients take a closed connection, even a TCP reset, for the
// regular end of the streams.
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

// startDrain refuses new streams from now on, and sends GOAWAY.
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
	if s.admitted {
		h.idleEnd = time.Now().Add(idleHTTP2)
	}
	if h.draining {
		h.idleEnd = pastDeadline
	}
	h.raw.SetReadDeadline(h.idleEnd)
}

// wakeSender has what is queued sent, in this order, and before DATA that is written later.
func (h *http2Conn) wakeSender() {
	select {
	case h.wakeups <- struct{}{}:
	default:
	}
}

// sendLoop writes the queue, so that readFrames never waits for a write.
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

// flushQueueLocked writes the queue. The caller holds writeMu.
func (h *http2Conn) flushQueueLocked() error {
	h.mu.Lock()
	b := h.queue.Bytes()
	h.queue, h.flushedAt = bytes.Buffer{}, time.Now()
	h.mu.Unlock()
	if len(b) == 0 {
		return nil
	}
	_, err := h.conn.Write(b)
	return err
}
