package mux

import (
	"bufio"
	"io"
	"sync"
)

const (
	packed     = 2 << 10 // up to it payloads are packed together
	readBuffer = packed  // of the session, for headers and small payloads
)

// waiter is a carrier that waits with less stack than its Read: see [Client].
type waiter interface{ Wait(idle func()) }

// readers are shared by all sessions, as buffers are.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}

func (s *Session) takeReader() {
	s.reader = readers.Get().(*bufio.Reader)
	s.reader.Reset(aliveReader{s})
}

// dropReader is called when nothing is buffered.
func (s *Session) dropReader() {
	s.reader.Reset(nil)
	readers.Put(s.reader)
	s.reader = nil
}

// readLoop handles what the carrier brings. It waits for nothing else.
func (s *Session) readLoop() {
	w, _ := s.carrier.(waiter)
	idle := s.dropReader
	for {
		if w != nil && s.reader.Buffered() == 0 {
			w.Wait(idle)
			if s.reader == nil {
				s.takeReader()
			}
		}
		if err := s.readFrame(); err != nil {
			s.fail(err)
			return
		}
		if s.came {
			s.came = false
			s.handOver()
		}
	}
}

func (s *Session) readFrame() error {
	b, err := s.reader.Peek(headerSize)
	if err != nil {
		return lost(err)
	}
	h, err := parseHeader(b)
	if err != nil {
		return err
	}
	s.reader.Discard(headerSize)
	switch h.kind {
	case typePing:
		s.pinged(h)
		return nil
	case typeGoAway:
		return s.peerGoAway(h.length)
	case typeWindow:
		return s.windowFrame(h)
	}
	return s.dataFrame(h)
}

// streamLocked is the stream of h, nil if there is none (any more).
func (s *Session) streamLocked(h header) (*Stream, error) {
	if s.err != nil {
		return nil, s.err
	}
	if h.flags&flagSYN != 0 {
		return s.incomingLocked(h.id)
	}
	return s.streams[h.id], nil
}

func (s *Session) windowFrame(h header) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.streamLocked(h)
	if st == nil || err != nil {
		return err
	}
	switch {
	case h.flags&flagRST != 0:
	case h.flags&flagSpare != 0:
		if err := s.spareLocked(st, h.length); err != nil {
			return err
		}
	default:
		st.openedLocked(h.length)
	}
	s.endsLocked(st, h.flags, h.length)
	return nil
}

// endsLocked is what a frame says beside its payload. code is for RST.
func (s *Session) endsLocked(st *Stream, flags uint16, code uint32) {
	if flags&flagFIN != 0 && !st.finCame {
		st.finCame = true
		s.releaseLocked(st)
		st.wakeReaderLocked()
		s.finishLocked(st)
	}
	if flags&flagRST != 0 && !st.gone {
		if st.reset == nil {
			st.reset = &ResetError{Code: code, Remote: true}
		}
		if st.links[listAccept].in && !st.finCame {
			// Nobody needs to see it; and it counts no more.
			s.accept.remove(st)
			s.dropReceivedLocked(st)
		}
		s.forgetLocked(st)
		s.resetCameLocked(st)
	}
}

// dataFrame reads the payload into buffers. A small one is waited for first: nobody
// accepts a stream of which the first bytes never come.
func (s *Session) dataFrame(h header) error {
	if h.length <= packed {
		if _, err := s.reader.Peek(int(h.length)); err != nil {
			return lost(err)
		}
	}
	st, wanted, err := s.dataHeader(h)
	if err != nil {
		return err
	}
	left := int(h.length)
	for left > 0 && wanted {
		b := s.get(classFor(left))
		b.w = min(left, len(b.data))
		left -= b.w
		if _, err := io.ReadFull(s.reader, b.data[:b.w]); err != nil {
			s.put(b)
			return lost(err)
		}
		wanted = s.receive(st, b)
	}
	if _, err := s.reader.Discard(left); err != nil {
		return lost(err)
	}
	if st != nil && h.flags&(flagFIN|flagRST) != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endsLocked(st, h.flags, CodeClosed)
	}
	return nil
}

// dataHeader finds the stream of a frame whose payload comes next, and says
// whether it is wanted.
func (s *Session) dataHeader(h header) (st *Stream, wanted bool, err error) {
	if h.length > maxWindow {
		return nil, false, protocolError("a frame of %d bytes", h.length)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err = s.streamLocked(h)
	if st != nil && err == nil {
		wanted, err = s.arrivedLocked(st, int(h.length))
	}
	return st, wanted, err
}

// arrivedLocked accounts for a payload of n bytes, and says whether somebody
// may read it.
func (s *Session) arrivedLocked(st *Stream, n int) (bool, error) {
	w := &st.window
	if n > w.receive {
		return false, protocolError("%d bytes for a window of %d", n, w.receive)
	}
	w.receive -= n
	w.unread += n
	s.in += uint64(n)
	if w.since == 0 {
		w.since = s.now()
	}
	if n > 0 && st.finCame && !st.closed {
		st.reset = &ResetError{Code: CodeProtocol}
		s.resetCameLocked(st)
		st.resetLocked(CodeProtocol)
	}
	return !st.closed, nil
}

// receive delivers b, or adds what is left of it to what st received, unless
// nobody will read it. A small one is copied into a buffer that others share: a
// larger one the more is not read, so that they are not many.
func (s *Session) receive(st *Stream, b *buffer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.closed && s.err == nil && (b.w > packed || s.reader.Buffered() == 0) {
		b.r = s.deliverLocked(st, b.data[:b.w]) // of small ones that follow each other, one write is for all
	}
	n, last := b.w-b.r, st.last
	switch {
	case st.closed || s.err != nil || n == 0:
		s.put(b)
		return !st.closed && s.err == nil
	case n > packed || last == nil:
		st.appendReceivedLocked(b)
	default:
		if last.free() < n {
			last = s.get(max(b.class, min(last.class+1, classGather)))
			st.appendReceivedLocked(last)
		}
		last.append(b.data[b.r:b.w])
		s.put(b)
	}
	st.wakeReaderLocked()
	return true
}

func (st *Stream) appendReceivedLocked(b *buffer) {
	if st.last == nil {
		st.first = b
	} else {
		st.last.next = b
	}
	st.last = b
}
