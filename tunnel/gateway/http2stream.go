package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/budget"
)

// maxData is the payload of a frame that, with its header, fits a TLS record.
const maxData = 16<<10 - 9

var (
	errFault   = errors.New("the client broke the rules of HTTP/2")
	errRefused = errors.New("the stream was refused")
	errReset   = fmt.Errorf("the client has reset the stream: %w", syscall.ECONNRESET)
)

// http2Stream is a stream of an http2Conn as a net.Conn. Only the relay uses it as
// such, and the relay sets no deadlines.
type http2Stream struct {
	h      *http2Conn
	id     uint32
	cancel func(error) // ends the handler's context

	// h.mu guards the fields below, and is the lock of cond.
	cond        sync.Cond
	received    chunkList
	takenAt     time.Time // when the target last took something
	window      int       // what the client may send that nobody has read
	recvWindow  int       // what it may send now
	consumed    int       // what it may send in addition once WINDOW_UPDATE says so
	taken       int64     // read by the target, in all
	large       bool      // window is largeWindow
	credit      int64     // what may be sent, beyond initialWindow
	admitted    bool
	endReceived bool  // by the client
	endSent     bool  // our end
	err         error // the cause if it is broken, or net.ErrClosed
}

var (
	_ net.Conn    = (*http2Stream)(nil)
	_ io.WriterTo = (*http2Stream)(nil)
)

// failLocked ends reads, writes and the handler. Unread data is lost, as with a
// reset of TCP.
func (s *http2Stream) failLocked(err error) {
	s.err = cmp.Or(s.err, err)
	for !s.received.isEmpty() {
		s.received.release(s.received.takeFirst())
	}
	delete(s.h.streams, s.id)
	s.cond.Broadcast()
	s.cancel(err)
}

// forgetIfEndedLocked removes a stream that both sides have ended.
func (s *http2Stream) forgetIfEndedLocked() {
	if s.endReceived && s.endSent {
		delete(s.h.streams, s.id)
	}
}

// waitReadableLocked waits for something to read.
func (s *http2Stream) waitReadableLocked() error {
	for s.err == nil && s.received.isEmpty() && !s.endReceived {
		s.cond.Wait()
	}
	switch {
	case s.err != nil:
		return s.opError("read", s.err)
	case s.received.isEmpty():
		return io.EOF
	}
	return nil
}

// receivedLocked keeps the data of a frame for the target.
func (s *http2Stream) receivedLocked(f *http2.DataFrame) {
	n, padding := len(f.Data()), int(f.Length)-len(f.Data())
	s.recvWindow -= n + padding
	if s.h.admitted {
		s.received.appendData(f.Data())
	} else {
		s.received.appendEarly(f.Data())
	}
	s.h.returnCreditLocked(n + padding)
	s.returnCreditLocked(padding)
	s.endReceived = f.StreamEnded()
	s.forgetIfEndedLocked()
	s.cond.Broadcast()
}

// returnCreditLocked gives n bytes of the stream's window back to the client, in
// steps of a quarter of the window, and makes the window large if that is due.
func (s *http2Stream) returnCreditLocked(n int) {
	s.consumed += n
	s.taken += int64(n)
	if s.err != nil || !s.admitted || s.endReceived || s.consumed < s.window/4 {
		return
	}
	if more := largeWindow - s.window; !s.large && s.taken >= largeAfter && s.h.grownBytes+more <= maxGrown {
		s.large = true
		s.h.grownBytes += largeWindow - streamWindow
		s.window = largeWindow
		s.consumed += more
	}
	s.sendWindowUpdateLocked(s.consumed)
	s.consumed = 0
}

// openWindowLocked widens the window of a stream that is let in to streamWindow.
func (s *http2Stream) openWindowLocked() {
	if more := streamWindow - s.window; more > 0 && !s.endReceived {
		s.window += more
		s.sendWindowUpdateLocked(more)
	}
}

func (s *http2Stream) sendWindowUpdateLocked(n int) {
	s.recvWindow += n
	s.h.queued.WriteWindowUpdate(s.id, uint32(n))
	s.h.wakeSender()
}

// Read is not called: package relay takes WriteTo.
func (s *http2Stream) Read([]byte) (int, error) { return 0, s.opError("read", errors.ErrUnsupported) }

// WriteTo implements io.WriterTo: unlike a copy by Read, it holds no buffer while
// nothing comes.
func (s *http2Stream) WriteTo(w io.Writer) (n int64, err error) {
	for {
		s.h.mu.Lock()
		err := s.waitReadableLocked()
		var c *chunk
		if err == nil {
			c = s.received.takeFirst()
		}
		s.h.mu.Unlock()
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
		m, err := w.Write(c.b)
		n += int64(m)
		s.h.mu.Lock()
		s.takenAt = time.Now()
		s.returnCreditLocked(len(c.b))
		s.received.release(c)
		s.h.mu.Unlock()
		if err != nil {
			return n, err
		}
	}
}

// Write returns when the connection has taken all of p.
func (s *http2Stream) Write(p []byte) (n int, err error) {
	for n < len(p) {
		m, err := s.reserveWindow(len(p) - n)
		if err == nil {
			err = s.writeData(p[n : n+m])
		}
		if err != nil {
			return n, s.opError("write", err)
		}
		n += m
	}
	return n, nil
}

// reserveWindow waits until both windows are open, and takes up to n bytes of them.
func (s *http2Stream) reserveWindow(n int) (int, error) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wakeNextLocked()
	for s.err == nil && !s.endSent && (s.sendWindowLocked() <= 0 || h.sendWindow <= 0) {
		set := h.waiting
		if s.sendWindowLocked() <= 0 {
			set = h.blocked
		}
		set[s] = struct{}{}
		s.cond.Wait()
		delete(set, s)
		if s.sendWindowLocked() <= 0 { // another one may have its turn
			h.wakeNextLocked()
		}
	}
	switch {
	case s.err != nil:
		return 0, s.err
	case s.endSent:
		return 0, syscall.EPIPE
	}
	n = int(min(int64(n), maxData, s.sendWindowLocked(), h.sendWindow))
	s.credit -= int64(n)
	h.sendWindow -= int64(n)
	return n, nil
}

// sendWindowLocked is what the stream may send, apart from the connection's window.
func (s *http2Stream) sendWindowLocked() int64 { return s.h.initialWindow + s.credit }

func (s *http2Stream) writeData(p []byte) error {
	h := s.h
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	err := h.flushQueueLocked()
	if err == nil {
		h.mu.Lock()
		err = s.err // a reset may have been among what was flushed
		h.mu.Unlock()
		if err != nil {
			return err
		}
		h.meter.useful.Add(int64(idlePerData + len(p)>>5))
		err = h.framer.WriteData(s.id, false, p)
	}
	if err != nil {
		h.raw.Close() // read sees it, and the other streams
	}
	return err
}

// CloseWrite ends the direction to the client (END_STREAM).
func (s *http2Stream) CloseWrite() error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	switch {
	case s.err != nil:
		return s.opError("close", s.err)
	case s.endSent:
		return nil
	}
	s.endSent = true
	s.h.queued.WriteData(s.id, true, nil)
	s.h.wakeSender()
	s.forgetIfEndedLocked()
	return nil
}

// Close resets the stream unless both sides have ended it.
func (s *http2Stream) Close() error { return s.closeWithCode(http2.ErrCodeCancel) }

// Reset tells the client that the target has reset the connection: CONNECT_ERROR
// (RFC 9113, 8.5).
func (s *http2Stream) Reset(uint32) error { return s.closeWithCode(http2.ErrCodeConnect) }

func (s *http2Stream) closeWithCode(code http2.ErrCode) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.err != nil {
		if errors.Is(s.err, net.ErrClosed) {
			return s.opError("close", s.err)
		}
		return nil
	}
	if !s.endReceived || !s.endSent {
		if s.endSent {
			code = http2.ErrCodeNo // nothing was lost, but no more is wanted
		}
		s.h.queueResetLocked(s.id, code)
	}
	s.failLocked(net.ErrClosed)
	return nil
}

func (s *http2Stream) LocalAddr() net.Addr  { return s.h.raw.LocalAddr() }
func (s *http2Stream) RemoteAddr() net.Addr { return s.h.raw.RemoteAddr() }

func (s *http2Stream) SetDeadline(time.Time) error     { return os.ErrNoDeadline }
func (s *http2Stream) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline is for package mux: if a Budget needs what a write waits with, the write
// has to end.
func (s *http2Stream) SetWriteDeadline(time.Time) error {
	s.reclaim()
	return nil
}

func (s *http2Stream) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}

// chunkList is received data that was not read yet.
type chunkList struct {
	list   []*chunk
	held   int // memory, also of chunks that were taken and not released
	budget *budget.Budget
}

type chunk struct{ b []byte }

const chunkSize = 16 << 10

var chunkPool = sync.Pool{New: func() any { return &chunk{b: make([]byte, 0, chunkSize)} }}

func (c *chunkList) release(taken *chunk) {
	c.holdMore(-cap(taken.b))
	if cap(taken.b) != chunkSize {
		return
	}
	taken.b = taken.b[:0]
	chunkPool.Put(taken)
}

func (c *chunkList) holdMore(n int) {
	c.held += n
	budget.Add(c.budget, n)
}

func (c *chunkList) isEmpty() bool { return len(c.list) == 0 }

// appendData copies p. Small pieces share a chunk.
func (c *chunkList) appendData(p []byte) {
	for len(p) > 0 {
		if c.isEmpty() || len(c.lastChunk().b) == cap(c.lastChunk().b) {
			c.list = append(c.list, chunkPool.Get().(*chunk))
			c.holdMore(chunkSize)
		}
		last := c.lastChunk()
		n := copy(last.b[len(last.b):cap(last.b)], p)
		last.b = last.b[:len(last.b)+n]
		p = p[n:]
	}
}

// appendEarly copies p into memory of its size: a stranger's bytes get no chunk.
func (c *chunkList) appendEarly(p []byte) {
	switch {
	case len(p) == 0:
		return
	case c.isEmpty():
		c.list = append(c.list, &chunk{})
	}
	last := c.lastChunk()
	before := cap(last.b)
	last.b = append(last.b, p...)
	c.holdMore(cap(last.b) - before)
}

func (c *chunkList) lastChunk() *chunk { return c.list[len(c.list)-1] }

// takeFirst returns the first chunk; the caller releases it.
func (c *chunkList) takeFirst() *chunk {
	first := c.list[0]
	if c.list = c.list[1:]; len(c.list) == 0 {
		c.list = nil
	}
	return first
}

// serve is the handler of a stream. It is given the request or the error of its
// header.
func (s *http2Stream) serve(ctx context.Context, request *connectRequest, err error) {
	g := s.h.g
	v := g.beginRequest(DoorConnect, s.h.raw.RemoteAddr())
	defer v.finish()
	var target net.Conn
	if err != nil {
		err = v.recordFailure(PhaseHandshake, err)
	} else if err = s.authorize(ctx, v, request); err == nil {
		target, _, err = v.dial(ctx, nil)
	}
	if err != nil {
		v.awaitRefusal(s.h.group.Context())
		s.sendAnswer(answerFor(err))
		return
	}
	if err := s.sendConnected(target); err != nil {
		abort.Reset(target, 0)
		v.recordFailure(PhaseRelay, err)
		return
	}
	v.relay(ctx, nil, nil, s, target)
}

// accountKey is the key of the client that was let in first.
func (h *http2Conn) accountKey() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	client, _ := h.holder.(Identity)
	return accountKey(client, h.raw.RemoteAddr())
}

func (s *http2Stream) authorize(ctx context.Context, v *clientRequest, request *connectRequest) error {
	ctx, cancel := context.WithTimeout(ctx, s.h.g.handshakeTimeout())
	defer cancel()
	s.h.beginAuthenticate()
	defer s.h.endAuthenticate(admission.Greeting)
	if err := v.authorize(ctx, s.h.credentialsFor(request)); err != nil {
		return err
	}
	if err := s.h.admitConnection(v.request.Client); err != nil {
		return v.recordFailure(PhaseLimit, err)
	}
	return nil
}

// admitConnection counts the connection for MaxConns when its first stream is let in.
func (h *http2Conn) admitConnection(client Identity) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.request.counted {
		return nil
	}
	if err := h.request.countAdmitted(""); err != nil {
		return err
	}
	h.leavePending()
	if client.Name != "" {
		h.holder = client
	}
	h.admitted = true // the limits for strangers end
	h.handlerRoom.Signal()
	h.returnCreditLocked(connWindow - defaultWindow)
	return nil
}

// sendConnected answers 200 and opens the stream's window.
func (s *http2Stream) sendConnected(target net.Conn) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.admitted = true
	s.h.meter.useful.Add(idlePerStream)
	status := connectedStatus(target)
	s.queueHeadersLocked(false, func(yield func(name, value string) bool) {
		if yield(":status", "200") && status != "" {
			yield("proxy-status", status)
		}
	})
	s.openWindowLocked()
	return nil
}

// sendAnswer sends an answer and ends the stream. The body is left out if the
// client's windows have no room for it.
func (s *http2Stream) sendAnswer(a *answer) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.err != nil {
		return
	}
	h.meter.useful.Add(idlePerStream)
	body := []byte(a.body())
	n := int64(len(body))
	room := s.sendWindowLocked() >= n && h.sendWindow >= n
	s.queueHeadersLocked(!room, func(yield func(name, value string) bool) {
		if yield(":status", strconv.Itoa(a.status)) {
			a.fields(func(name, value string) bool { return yield(strings.ToLower(name), value) })
		}
	})
	if room {
		h.sendWindow -= n
		h.queued.WriteData(s.id, true, body)
	}
	if !s.endReceived {
		h.queueResetLocked(s.id, http2.ErrCodeNo)
	}
	h.refusals++
	h.wakeSender()
	s.failLocked(errRefused)
}

func (s *http2Stream) queueHeadersLocked(end bool, fields func(func(name, value string) bool)) {
	h := s.h
	h.encoded.Reset()
	for name, value := range fields {
		h.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	h.queued.WriteHeaders(http2.HeadersFrameParam{
		StreamID: s.id, BlockFragment: h.encoded.Bytes(), EndStream: end, EndHeaders: true,
	})
	h.wakeSender()
}
