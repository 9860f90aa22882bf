package mux

import (
	"bufio"
	"io"
	"runtime"
	"sync"

	"github.com/causewayproject/causeway/internal/budget"
)

const (
	packedSize = 2 << 10    // payloads up to this size share a buffer
	readBuffer = packedSize // size of the session's buffer for headers and small payloads
)

// idleWaiter is a carrier that can wait without a read buffer: see [Client].
type idleWaiter interface{ Wait(idle func()) }

// readers are shared by all sessions, as the pools of buffers are.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}

func (s *Session) acquireReader() {
	s.reader = readers.Get().(*bufio.Reader)
	s.reader.Reset(aliveReader{s})
}

// releaseReader puts the reader back while the session is idle. It must hold no
// bytes.
func (s *Session) releaseReader() {
	s.reader.Reset(nil)
	readers.Put(s.reader)
	s.reader = nil
}

// readLoop reads and handles frames until the carrier or the session ends. It waits
// only for the carrier, and for the peer to take what it causes: see queueRefusalLocked and
// acceptSYNLocked. After a ping another goroutine goes on with it.
func (s *Session) readLoop() {
	w, _ := s.carrier.(idleWaiter)
	idle := s.releaseReader
	pinged := false
	for {
		if s.frames++; s.frames%64 == 0 { // floods of small frames must not have whole slices of time
			runtime.Gosched()
		}
		if w != nil && s.reader.Buffered() == 0 {
			if pinged { // the session may be idle for long, and the stack of a new goroutine is small
				s.loops.Go(s.readLoop)
				return
			}
			w.Wait(idle)
			if s.reader == nil {
				s.acquireReader()
			}
		}
		kind, err := s.readFrame()
		if err != nil {
			s.closeWithCause(err)
			return
		}
		pinged = kind == typePing
		if s.streamOpened {
			s.streamOpened = false
			s.handOver()
		}
	}
}

func (s *Session) readFrame() (kind byte, err error) {
	b, err := s.reader.Peek(headerSize)
	if err != nil {
		return 0, newLostError(err)
	}
	h, err := parseHeader(b)
	if err != nil {
		return 0, err
	}
	s.reader.Discard(headerSize)
	switch h.kind {
	case typePing:
		s.handlePing(h)
	case typeGoAway:
		err = s.handleGoAway(h.length)
	case typeWindow:
		err = s.handleWindowUpdate(h)
	default:
		err = s.handleData(h)
	}
	return h.kind, err
}

// lookupStreamLocked returns the stream of h, or a new one if h has SYN. It returns
// nil if there is no such stream any more, or if the new one was refused.
func (s *Session) lookupStreamLocked(h header) (*Stream, error) {
	if s.err != nil {
		return nil, s.err
	}
	if h.flags&flagSYN != 0 {
		return s.acceptSYNLocked(h.id)
	}
	st := s.streams[h.id]
	if st != nil && h.flags&flagACK != 0 {
		s.noteAckLocked(st)
	}
	return st, nil
}

func (s *Session) handleWindowUpdate(h header) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.lookupStreamLocked(h)
	if st == nil || err != nil {
		return err
	}
	switch {
	case h.flags&flagRST != 0:
	case h.flags&flagUnused != 0:
		if err := s.handleUnusedLocked(st, h.length); err != nil {
			return err
		}
	default:
		st.window.send = min(st.window.send+int(h.length), 1<<31-1)
		st.writable.Signal()
	}
	s.handleFlagsLocked(st, h.flags, h.length)
	return nil
}

// handleFlagsLocked handles the FIN and RST of a frame, after its payload. code
// belongs to RST. With both flags FIN comes first, so that readers find io.EOF
// after the data, and writers the reset.
func (s *Session) handleFlagsLocked(st *Stream, flags uint16, code uint32) {
	if flags&flagFIN != 0 && !st.finReceived {
		st.finReceived = true
		s.releaseWindowLocked(st)
		st.wakeReaderLocked()
		s.removeIfEndedLocked(st)
	}
	if flags&flagRST != 0 && !st.removed {
		if st.reset == nil {
			st.reset = &ResetError{Code: code, Remote: true}
		}
		if st.links[listAccept].in && !st.finReceived {
			// Nobody has seen the stream: it need not be accepted, nor be counted.
			s.acceptQueue.remove(st)
			s.unaccepted--
			s.dropReceivedLocked(st)
		}
		s.removeStreamLocked(st)
		s.notifyResetLocked(st, st.finReceived)
	}
}

// handleData reads a data frame's payload into buffers of its stream. It waits for
// all of a small payload first, so that no stream is accepted whose first bytes
// never come.
func (s *Session) handleData(h header) error {
	if h.length <= packedSize {
		if _, err := s.reader.Peek(int(h.length)); err != nil {
			return newLostError(err)
		}
	}
	st, wanted, err := s.startData(h)
	if err != nil {
		return err
	}
	left := int(h.length)
	for left > 0 && wanted {
		budget.Keep(s.config.Budget)
		b := s.getBuffer(classFor(left))
		b.w = min(left, len(b.data))
		left -= b.w
		s.fillingSince.Store(int64(s.now()))
		_, err := io.ReadFull(s.reader, b.data[:b.w])
		s.fillingSince.Store(0)
		if err != nil {
			s.putBuffer(b)
			return newLostError(err)
		}
		wanted = s.queueReceived(st, b)
	}
	if _, err := s.reader.Discard(left); err != nil {
		return newLostError(err)
	}
	if st != nil && h.flags&(flagFIN|flagRST) != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handleFlagsLocked(st, h.flags, CodeClosed)
	}
	return nil
}

// startData finds the stream of a data frame and takes the payload from the
// stream's window. wanted is false if the payload is to be discarded.
func (s *Session) startData(h header) (st *Stream, wanted bool, err error) {
	if h.length > maxWindow {
		return nil, false, protocolError("a frame of %d bytes", h.length)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err = s.lookupStreamLocked(h)
	if st != nil && err == nil {
		wanted, err = s.accountReceivedLocked(st, int(h.length))
	}
	return st, wanted, err
}

// accountReceivedLocked takes a payload of n bytes from the receive window, and
// reports whether somebody may read it. It is an error of the session if the peer
// sent more than the window, as yamux's spec says. Data after a FIN is an error of
// only the stream.
func (s *Session) accountReceivedLocked(st *Stream, n int) (bool, error) {
	w := &st.window
	if n > w.receive {
		return false, protocolError("%d bytes for a window of %d", n, w.receive)
	}
	w.receive -= n
	w.unread += n
	s.bytesIn += uint64(n)
	if w.readSince == 0 {
		w.readSince = s.now()
	}
	if n > 0 && st.finReceived && !st.closed {
		st.reset = &ResetError{Code: CodeProtocol}
		s.notifyResetLocked(st, st.finReceived)
		st.resetStreamLocked(CodeProtocol)
	}
	return !st.closed, nil
}

// queueReceived writes b to the stream's socket directly, as far as that is
// possible, and queues the rest. It returns false if nobody will read it. Small
// payloads are copied together into one buffer, of a larger class each time one is
// full: a peer that sends single bytes must not fill a buffer with each.
func (s *Session) queueReceived(st *Stream, b *buffer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.closed && s.err == nil && (b.w > packedSize || s.reader.Buffered() == 0) {
		// Small payloads that follow each other are queued, for one write of all.
		b.r = s.writeDirectLocked(st, b.data[:b.w])
	}
	n, last := b.w-b.r, st.last
	switch {
	case st.closed || s.err != nil || n == 0:
		s.putBuffer(b)
		return !st.closed && s.err == nil
	case n > packedSize || last == nil:
		st.appendReceivedLocked(b)
	default:
		if last.freeSpace() < n {
			last = s.getBuffer(max(b.class, min(last.class+1, classGather)))
			st.appendReceivedLocked(last)
		}
		last.append(b.data[b.r:b.w])
		s.putBuffer(b)
	}
	st.wakeReaderLocked()
	return true
}

func (st *Stream) appendReceivedLocked(b *buffer) {
	if st.last == nil {
		st.first = b
		st.session.unread.push(st)
		st.window.takenAt = st.session.now()
	} else {
		st.last.next = b
	}
	st.last = b
}
