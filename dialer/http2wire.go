package dialer

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/internal/abort"
)

const (
	http2FrameHeader = 9
	// http2FrameSize is the largest payload that is sent and received: the least
	// SETTINGS_MAX_FRAME_SIZE (RFC 9113, section 4.2).
	http2FrameSize = 16 << 10
	// neverOpened is the number of a stream that never exists: only the proxy could open it,
	// which SETTINGS forbid. net/http drops its DATA and returns the window.
	neverOpened = 2
	// endPing is the beginning of the data of a PING that is sent after the end of a
	// stream. The rest is the stream's number. The answer says that the proxy has read
	// all of the stream.
	endPing = "end "
)

// http2Wire is the net.Conn that a ClientConn of net/http reads from and writes to. It
// passes the frames on, and does what a ClientConn has no setting for:
//
//   - It lowers SETTINGS_MAX_FRAME_SIZE, because net/http holds a buffer of that size,
//     up to 512 KiB, for each stream.
//   - It drops frames for which net/http would write to the standard logger: frames of
//     unknown types, and DATA for a stream that has no answer or has ended.
//   - It remembers why the connection failed, which net/http's errors say only in
//     their text.
//   - It counts what the proxy has taken of each stream, for http2Stream.Close.
//
// Each was tried without it, with Go 1.26.8 and 1.27.2: an idle tunnel holds 547 KiB in
// place of less than 64, each frame of a flood is a line of the log, a proxy that failed
// can't be told from a target that did, and Close takes 5 seconds.
type http2Wire struct {
	*tls.Conn
	settle      func() // called when the proxy's SETTINGS were dealt with
	pingTimeout time.Duration

	// Only Read uses these.
	in      *bufio.Reader
	head    [http2FrameHeader]byte
	frame   []byte         // the last frame that is not DATA
	started bool           // the first frame was read
	ready   []byte         // what Read returns next
	left    int            // the bytes of a DATA frame that come after ready
	block   bool           // the header block continues in the next frame
	end     bool           // the header block has END_STREAM
	status  string         // the :status in the header block
	headers *hpack.Decoder // sets status

	// Only Write uses these. net/http does not call it concurrently.
	out       []byte // the first bytes of a frame's header
	skip      int    // the bytes of the payload that are still to come
	sendBlock bool   // the header block continues in the next frame
	pings     []byte // PING frames to send when a frame is complete

	mu      sync.Mutex // guards the fields below
	streams map[uint32]*wireStream
	newest  *wireStream            // the stream of the last request
	highest uint32                 // the number of newest
	goAway  *http2.ConnectionError // the code of GOAWAY; nil: none came
	closed  bool                   // by this side
	failed  error                  // the first error of Read or Write before that
	pinged  time.Time              // when the PING without an answer was sent; zero: none
}

// wireStream is a stream, from its request until both sides have ended it or one has
// reset it. The wire's mu guards it.
type wireStream struct {
	answered bool      // by a status that is not interim
	ended    bool      // the proxy has sent END_STREAM
	sentEnd  bool      // we have sent END_STREAM
	reset    bool      // by the proxy
	over     bool      // both sides have ended it, or one has reset it
	untaken  int       // the bytes for which the proxy has returned no window
	taken    bool      // the proxy has read all of the stream
	progress time.Time // of the last WINDOW_UPDATE, or when taken was set
}

func newHTTP2Wire(tc *tls.Conn, pingTimeout time.Duration, settle func()) *http2Wire {
	w := &http2Wire{
		Conn:        tc,
		settle:      settle,
		pingTimeout: pingTimeout,
		in:          bufio.NewReader(tc),
		skip:        len(http2.ClientPreface),
		streams:     map[uint32]*wireStream{},
	}
	w.headers = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			w.status = f.Value
		}
	})
	return w
}

func (w *http2Wire) Read(p []byte) (int, error) {
	for len(w.ready) == 0 && w.left == 0 {
		if err := w.readFrame(); err != nil {
			return 0, w.recordFailure(err)
		}
	}
	if len(w.ready) > 0 {
		n := copy(p, w.ready)
		w.ready = w.ready[n:]
		return n, nil
	}
	n, err := w.in.Read(p[:min(len(p), w.left)])
	w.left -= n
	if err != nil {
		err = w.recordFailure(err)
	}
	return n, err
}

// readFrame reads one frame; of DATA it reads only the header.
func (w *http2Wire) readFrame() error {
	if w.started {
		w.settle() // net/http has handled the first frame, the SETTINGS
	}
	if _, err := io.ReadFull(w.in, w.head[:]); err != nil {
		return err
	}
	h := parseFrameHeader(w.head[:])
	switch {
	case h.Length > http2FrameSize || w.block && h.Type != http2.FrameContinuation:
		w.ready = w.head[:] // an error, for which net/http closes the connection
		return nil
	case !w.started && h.Type != http2.FrameSettings:
		return errors.New("the first frame of the proxy is not SETTINGS")
	case h.Type == http2.FrameData:
		return w.handleData(h)
	case h.Type == http2.FramePriority || h.Type > http2.FrameContinuation:
		_, err := w.in.Discard(int(h.Length))
		return err
	}
	w.started = true
	w.frame = slices.Grow(append(w.frame[:0], w.head[:]...), int(h.Length))[:http2FrameHeader+h.Length]
	payload := w.frame[http2FrameHeader:]
	if _, err := io.ReadFull(w.in, payload); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trackControlLocked(h, payload)
	w.ready = w.frame
	return nil
}

// handleData passes DATA on if its stream may receive it. Otherwise it makes net/http
// reset the stream, by a WINDOW_UPDATE of zero bytes, and passes the DATA on for the
// stream neverOpened.
func (w *http2Wire) handleData(h http2.FrameHeader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = int(h.Length)
	s := w.streams[h.StreamID]
	switch {
	case h.StreamID == 0 || s != nil && s.answered && !s.ended:
		w.ready = w.head[:]
	case h.StreamID > w.highest || h.StreamID%2 == 0:
		return errors.New("the proxy sent DATA for a stream that was not opened")
	default:
		w.ready = binary.BigEndian.AppendUint32([]byte{0, 0, 4, byte(http2.FrameWindowUpdate), 0}, h.StreamID)
		w.ready = append(w.ready, 0, 0, 0, 0)
		binary.BigEndian.PutUint32(w.head[5:], neverOpened)
		w.ready = append(w.ready, w.head[:]...)
	}
	if s != nil && h.Flags.Has(http2.FlagDataEndStream) {
		w.endReceivedLocked(h.StreamID, s)
	}
	return nil
}

// trackControlLocked records what a frame other than DATA says, and lowers the frame
// size in SETTINGS. A malformed frame is left to net/http.
func (w *http2Wire) trackControlLocked(h http2.FrameHeader, payload []byte) {
	switch h.Type {
	case http2.FrameHeaders, http2.FrameContinuation:
		w.trackHeadersLocked(h, payload)
	case http2.FrameSettings:
		limitFrameSize(payload)
	case http2.FramePing:
		if h.Flags.Has(http2.FlagPingAck) {
			w.pingAnsweredLocked(payload)
		}
	case http2.FrameGoAway:
		if len(payload) >= 8 {
			code := http2.ConnectionError(binary.BigEndian.Uint32(payload[4:]))
			w.goAway = &code
		}
	case http2.FrameRSTStream:
		if s := w.streams[h.StreamID]; s != nil {
			s.reset = true
		}
		w.removeStreamLocked(h.StreamID)
	case http2.FrameWindowUpdate:
		if s := w.streams[h.StreamID]; s != nil && len(payload) == 4 {
			// Some proxies enlarge the window at the start: that is no credit.
			s.untaken = max(0, s.untaken-int(binary.BigEndian.Uint32(payload)&^(1<<31)))
			s.progress = time.Now()
		}
	}
}

func (w *http2Wire) pingAnsweredLocked(data []byte) {
	if len(data) != 8 || string(data[:4]) != endPing {
		w.pinged = time.Time{}
		return
	}
	if s := w.streams[binary.BigEndian.Uint32(data[4:])]; s != nil {
		s.taken = true
		s.progress = time.Now()
	}
}

// trackHeadersLocked reads the status of a header block, to find the answer that is not
// interim.
func (w *http2Wire) trackHeadersLocked(h http2.FrameHeader, fragment []byte) {
	if h.Type == http2.FrameHeaders {
		w.status, w.end = "", h.Flags.Has(http2.FlagHeadersEndStream)
		padding := 0
		if h.Flags.Has(http2.FlagHeadersPadded) && len(fragment) > 0 {
			padding, fragment = int(fragment[0]), fragment[1:]
		}
		if h.Flags.Has(http2.FlagHeadersPriority) {
			fragment = fragment[min(5, len(fragment)):]
		}
		fragment = fragment[:max(0, len(fragment)-padding)]
	}
	w.headers.Write(fragment) // net/http returns the same errors
	w.block = !h.Flags.Has(http2.FlagHeadersEndHeaders)
	if w.block {
		return
	}
	w.headers.Close()
	if s := w.streams[h.StreamID]; s != nil {
		code, err := strconv.Atoi(w.status) // so net/http reads it
		s.answered = s.answered || err == nil && code/100 != 1
		if w.end {
			w.endReceivedLocked(h.StreamID, s)
		}
	}
}

// limitFrameSize lowers the frame size in the payload of SETTINGS. It does not change
// an invalid value.
func limitFrameSize(payload []byte) {
	for ; len(payload) >= 6; payload = payload[6:] {
		value := binary.BigEndian.Uint32(payload[2:])
		if http2.SettingID(binary.BigEndian.Uint16(payload)) == http2.SettingMaxFrameSize && value < 1<<24 {
			binary.BigEndian.PutUint32(payload[2:], min(value, http2FrameSize))
		}
	}
}

func (w *http2Wire) endReceivedLocked(stream uint32, s *wireStream) {
	s.ended = true
	if s.sentEnd {
		w.removeStreamLocked(stream)
	}
}

func (w *http2Wire) removeStreamLocked(stream uint32) {
	if s := w.streams[stream]; s != nil {
		s.over = true
		delete(w.streams, stream)
	}
}

func (w *http2Wire) Write(p []byte) (int, error) {
	w.trackSent(p)
	all := p
	if len(w.pings) > 0 && len(w.out) == 0 && w.skip == 0 && !w.sendBlock {
		all = slices.Concat(p, w.pings)
		w.pings = w.pings[:0]
	}
	n, err := w.Conn.Write(all)
	if err != nil {
		err = w.recordFailure(err)
	}
	return min(n, len(p)), err
}

// trackSent records the frames that net/http sends, in pieces of any size.
func (w *http2Wire) trackSent(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		if w.skip > 0 {
			n := min(w.skip, len(p))
			w.skip -= n
			p = p[n:]
			continue
		}
		n := min(http2FrameHeader-len(w.out), len(p))
		w.out = append(w.out, p[:n]...)
		p = p[n:]
		if len(w.out) == http2FrameHeader {
			h := parseFrameHeader(w.out)
			w.out, w.skip = w.out[:0], int(h.Length)
			w.trackSentFrameLocked(h)
		}
	}
}

func (w *http2Wire) trackSentFrameLocked(h http2.FrameHeader) {
	switch h.Type {
	case http2.FrameContinuation:
		w.sendBlock = !h.Flags.Has(http2.FlagContinuationEndHeaders)
	case http2.FrameHeaders:
		w.sendBlock = !h.Flags.Has(http2.FlagHeadersEndHeaders)
		w.newest = &wireStream{}
		w.highest = h.StreamID
		w.streams[h.StreamID] = w.newest
	case http2.FrameData:
		if s := w.streams[h.StreamID]; s != nil {
			s.untaken += int(h.Length)
			if h.Flags.Has(http2.FlagDataEndStream) {
				w.endSentLocked(h.StreamID, s)
			}
		}
	case http2.FrameRSTStream:
		w.removeStreamLocked(h.StreamID)
	case http2.FramePing:
		if !h.Flags.Has(http2.FlagPingAck) && w.pinged.IsZero() {
			w.pinged = time.Now()
		}
	}
}

func (w *http2Wire) endSentLocked(stream uint32, s *wireStream) {
	s.sentEnd = true
	switch {
	case s.ended:
		w.removeStreamLocked(stream)
		return
	case s.untaken == 0: // nothing was written, or the proxy has taken it
		s.taken, s.progress = true, time.Now()
		return
	}
	w.pings = append(append(w.pings, 0, 0, 8, byte(http2.FramePing), 0, 0, 0, 0, 0), endPing...)
	w.pings = binary.BigEndian.AppendUint32(w.pings, stream)
}

// newestStream returns the stream whose request was sent last.
func (w *http2Wire) newestStream() *wireStream {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest
}

// maxUntaken is how many bytes a proxy may have passed on without a WINDOW_UPDATE. Most
// proxies send one when half of the window is used, and the default window is 64 KiB.
const maxUntaken = 32 << 10

// silentFor returns how long ago the proxy had read all of s, its end included, or has
// last sent something for s. It is zero if the proxy has not read all, and negative if
// s is over.
func (w *http2Wire) silentFor(s *wireStream) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.over:
		return -1
	case !s.taken || s.untaken >= maxUntaken:
		return 0
	}
	return time.Since(s.progress)
}

// recordFailure keeps the first error of Read and Write, and returns err.
func (w *http2Wire) recordFailure(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil && !w.closed {
		w.failed = err
	}
	return err
}

// failureCause replaces err, an error of s, by one that says what the proxy did to the
// stream or the connection, without net/http's types. s may be nil.
func (w *http2Wire) failureCause(s *wireStream, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var stream http2.StreamError // errors.As turns net/http's own into it
	switch {
	case errors.As(err, &stream):
		if s != nil && s.reset {
			return &resetError{stream}
		}
		return err
	case w.goAway != nil:
		return fmt.Errorf("the proxy sent GOAWAY: %w (%w)", *w.goAway, io.ErrUnexpectedEOF)
	case errors.Is(w.failed, io.EOF):
		return errHTTP2CutOff
	case w.failed != nil:
		return fmt.Errorf("the connection to the proxy failed: %w", w.failed)
	case !w.pinged.IsZero() && time.Since(w.pinged) >= w.pingTimeout/2:
		return fmt.Errorf("the proxy did not answer a PING: %w", syscall.ETIMEDOUT)
	}
	return err
}

// Close closes the connection at once, without TLS's close_notify, which could wait for
// seconds.
func (w *http2Wire) Close() error {
	w.settle()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	abort.Close(w.Conn)
	return nil
}

// resetError is the error of a stream for which the proxy has sent RST_STREAM.
type resetError struct{ stream http2.StreamError }

func (e *resetError) Error() string { return "the proxy reset the stream: " + e.stream.Code.String() }
func (e *resetError) Unwrap() error { return e.stream }

// Is makes errors.Is find ECONNRESET, except for CONNECT_ERROR, which is about the
// connection to the target (RFC 9113, section 8.5).
func (e *resetError) Is(target error) bool {
	return target == syscall.ECONNRESET && e.stream.Code != http2.ErrCodeConnect
}

func parseFrameHeader(b []byte) http2.FrameHeader {
	return http2.FrameHeader{
		Length:   uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]),
		Type:     http2.FrameType(b[3]),
		Flags:    http2.Flags(b[4]),
		StreamID: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}
