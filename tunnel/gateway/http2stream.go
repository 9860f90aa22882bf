package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// maxData is a frame that with its header fits a record of TLS.
const maxData = 16<<10 - 9

var (
	errFault   = errors.New("the client broke the rules of HTTP/2")
	errRefused = errors.New("the stream was refused")
	errReset   = fmt.Errorf("the client has reset the stream: %w", syscall.ECONNRESET)
)

// http2Stream is a client of the CONNECT door. Nothing but the relay has it, so
// it has no deadlines.
type http2Stream struct {
	h      *http2Server
	id     uint32
	cancel func(error) // ends the handler's context

	// h.mu guards the fields below; cond uses it.
	cond       sync.Cond
	received   chunks
	window     int   // what the client may send that nobody has read
	recvWindow int   // what it may send now
	consumed   int   // and what it may send anew, and doesn't know of yet
	taken      int64 // by the target
	large      bool  // window is largeWindow
	sendWindow int64
	admitted   bool
	ended      bool  // by the client
	sent       bool  // our end
	err        error // why it is broken, or that it is closed
}

var (
	_ net.Conn    = (*http2Stream)(nil)
	_ io.WriterTo = (*http2Stream)(nil)
)

// breakLocked ends reads, writes and the handler. What has come and was not
// read is lost, as it is with TCP.
func (s *http2Stream) breakLocked(err error) {
	if s.err == nil {
		s.err = err
	}
	if n := s.received.drop(); !s.h.admitted {
		s.h.kept -= n
		s.h.consumedLocked(n)
	}
	delete(s.h.streams, s.id)
	s.cond.Broadcast()
	s.cancel(err)
}

// endedLocked forgets a stream that both sides have ended.
func (s *http2Stream) endedLocked() {
	if s.ended && s.sent {
		delete(s.h.streams, s.id)
	}
}

// waitLocked waits for something to read.
func (s *http2Stream) waitLocked() error {
	for s.err == nil && s.received.empty() && !s.ended {
		s.cond.Wait()
	}
	switch {
	case s.err != nil:
		return s.opError("read", s.err)
	case s.received.empty():
		return io.EOF
	}
	return nil
}

// receivedLocked keeps data for the target.
func (s *http2Stream) receivedLocked(f *http2.DataFrame) {
	n, padding := len(f.Data()), int(f.Length)-len(f.Data())
	s.recvWindow -= n + padding
	if s.h.admitted {
		s.received.add(f.Data())
		s.h.consumedLocked(n + padding)
	} else {
		s.received.addEarly(f.Data())
		s.h.kept += n
		s.h.consumedLocked(padding)
	}
	s.consumedLocked(padding)
	s.ended = f.StreamEnded()
	s.endedLocked()
	s.cond.Broadcast()
}

// consumedLocked lets the client send n more.
func (s *http2Stream) consumedLocked(n int) {
	s.consumed += n
	s.taken += int64(n)
	if !s.admitted || s.ended || s.consumed < s.window/4 {
		return
	}
	if more := largeWindow - s.window; !s.large && s.taken >= largeAfter && s.h.grown+more <= maxGrown {
		s.large = true
		s.h.grown += largeWindow - streamWindow
		s.window = largeWindow
		s.consumed += more
	}
	s.grantLocked(s.consumed)
	s.consumed = 0
}

// openLocked gives a stream that was let in its window.
func (s *http2Stream) openLocked() {
	if more := streamWindow - s.window; more > 0 && !s.ended {
		s.window += more
		s.grantLocked(more)
	}
}

func (s *http2Stream) grantLocked(n int) {
	s.recvWindow += n
	s.h.queued.WriteWindowUpdate(s.id, uint32(n))
	s.h.poke()
}

func (s *http2Stream) Read(p []byte) (int, error) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if err := s.waitLocked(); err != nil {
		return 0, err
	}
	n := s.received.read(p)
	s.consumedLocked(n)
	return n, nil
}

// WriteTo needs no buffer while nothing comes.
func (s *http2Stream) WriteTo(w io.Writer) (n int64, err error) {
	for {
		s.h.mu.Lock()
		err := s.waitLocked()
		var c *chunk
		if err == nil {
			c = s.received.take()
		}
		s.h.mu.Unlock()
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
		m, err := w.Write(c.b[c.from:])
		n += int64(m)
		length := len(c.b) - c.from
		c.free()
		if err != nil {
			return n, err
		}
		s.h.mu.Lock()
		s.consumedLocked(length)
		s.h.mu.Unlock()
	}
}

// Write returns when the connection has taken all of p.
func (s *http2Stream) Write(p []byte) (n int, err error) {
	for n < len(p) {
		m, err := s.reserve(len(p) - n)
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

// reserve waits until the client lets us send, at most n bytes.
func (s *http2Stream) reserve(n int) (int, error) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	for s.err == nil && !s.sent && (s.sendWindow <= 0 || h.sendWindow <= 0) {
		s.cond.Wait()
	}
	switch {
	case s.err != nil:
		return 0, s.err
	case s.sent:
		return 0, syscall.EPIPE
	}
	n = int(min(int64(n), maxData, s.sendWindow, h.sendWindow))
	s.sendWindow -= int64(n)
	h.sendWindow -= int64(n)
	return n, nil
}

func (s *http2Stream) writeData(p []byte) error {
	h := s.h
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	err := h.flushLocked()
	if err == nil {
		h.mu.Lock()
		err = s.err // a reset may have been among what was flushed
		h.mu.Unlock()
		if err != nil {
			return err
		}
		err = h.framer.WriteData(s.id, false, p)
	}
	if err != nil {
		h.raw.Close() // read sees it, and the other streams
	}
	return err
}

// CloseWrite ends what the client gets (END_STREAM).
func (s *http2Stream) CloseWrite() error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	switch {
	case s.err != nil:
		return s.opError("close", s.err)
	case s.sent:
		return nil
	}
	s.sent = true
	s.h.queued.WriteData(s.id, true, nil)
	s.h.poke()
	s.endedLocked()
	return nil
}

// Close resets the stream unless both sides have ended it.
func (s *http2Stream) Close() error { return s.close(http2.ErrCodeCancel) }

// Reset tells the client that the target has broken off (RFC 9113, 8.5).
func (s *http2Stream) Reset(uint32) error { return s.close(http2.ErrCodeConnect) }

func (s *http2Stream) close(code http2.ErrCode) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.err != nil {
		if errors.Is(s.err, net.ErrClosed) {
			return s.opError("close", s.err)
		}
		return nil
	}
	if !s.ended || !s.sent {
		if s.sent {
			code = http2.ErrCodeNo // nothing was lost, but no more is wanted
		}
		s.h.rstLocked(s.id, code)
	}
	s.breakLocked(net.ErrClosed)
	return nil
}

func (s *http2Stream) LocalAddr() net.Addr  { return s.h.raw.LocalAddr() }
func (s *http2Stream) RemoteAddr() net.Addr { return s.h.raw.RemoteAddr() }

func (s *http2Stream) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (s *http2Stream) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (s *http2Stream) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

func (s *http2Stream) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}

// chunks is what has come and was not read.
type chunks struct{ list []*chunk }

type chunk struct {
	b    []byte
	from int // of b what was not read
}

const chunkSize = 16 << 10

var chunkPool = sync.Pool{New: func() any { return &chunk{b: make([]byte, 0, chunkSize)} }}

func (c *chunk) free() {
	if cap(c.b) != chunkSize {
		return
	}
	c.b, c.from = c.b[:0], 0
	chunkPool.Put(c)
}

func (c *chunks) empty() bool { return len(c.list) == 0 }

// add copies p. Small pieces share a chunk.
func (c *chunks) add(p []byte) {
	for len(p) > 0 {
		if c.empty() || len(c.last().b) == cap(c.last().b) {
			c.list = append(c.list, chunkPool.Get().(*chunk))
		}
		last := c.last()
		n := copy(last.b[len(last.b):cap(last.b)], p)
		last.b = last.b[:len(last.b)+n]
		p = p[n:]
	}
}

// addEarly copies p, and takes no more memory than that needs.
func (c *chunks) addEarly(p []byte) {
	switch {
	case len(p) == 0:
		return
	case c.empty():
		c.list = append(c.list, &chunk{})
	}
	c.last().b = append(c.last().b, p...)
}

func (c *chunks) last() *chunk { return c.list[len(c.list)-1] }

// take returns the first chunk; the caller frees it.
func (c *chunks) take() *chunk {
	first := c.list[0]
	if c.list = c.list[1:]; len(c.list) == 0 {
		c.list = nil
	}
	return first
}

func (c *chunks) read(p []byte) int {
	first := c.list[0]
	n := copy(p, first.b[first.from:])
	if first.from += n; first.from == len(first.b) {
		c.take().free()
	}
	return n
}

// drop forgets all, and returns how much that was.
func (c *chunks) drop() (n int) {
	for !c.empty() {
		first := c.take()
		n += len(first.b) - first.from
		first.free()
	}
	return n
}
