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
	if h.length <= packed {
		return s.smallData(h)
	}
	return s.largeData(h)
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
	if h.flags&flagRST == 0 {
		st.openedLocked(h.length)
	}
	s.endsLocked(st, h.flags, h.length)
	return nil
}

// endsLocked is what a frame says beside its payload. code is for RST.
func (s *Session) endsLocked(st *Stream, flags uint16, code uint32) {
	if flags&flagFIN != 0 && !st.finCame {
		st.finCame = true
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
	}
}

// smallData copies the payload to the end of what the stream received.
func (s *Session) smallData(h header) error {
	n := int(h.length)
	payload, err := s.reader.Peek(n)
	if err != nil {
		return lost(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.streamLocked(h)
	if st != nil && err == nil {
		var wanted bool
		if wanted, err = s.arrivedLocked(st, n); wanted && n > 0 {
			s.packLocked(st, payload)
		}
		s.endsLocked(st, h.flags, CodeClosed)
	}
	s.reader.Discard(n)
	return err
}

func (s *Session) packLocked(st *Stream, p []byte) {
	if s.reader.Buffered() == len(p) { // else more follows: one write is for all
		if p = p[s.deliverLocked(st, p):]; len(p) == 0 || st.closed {
			return
		}
	}
	b := st.last
	if b == nil || b.free() < len(p) {
		b = s.get(st.nextClass(len(p)))
		st.appendReceivedLocked(b)
	}
	b.append(p)
	st.wakeReaderLocked()
}

// nextClass is that of a buffer for small payloads: bigger ones for a stream
// of which much is not read, so that it is not many.
func (st *Stream) nextClass(n int) int {
	class := classFor(n)
	if st.last != nil {
		class = max(class, min(st.last.class+1, classGather))
	}
	return class
}

func (st *Stream) appendReceivedLocked(b *buffer) {
	if st.last == nil {
		st.first = b
	} else {
		st.last.next = b
	}
	st.last = b
}

// largeData reads the payload into buffers of its own.
func (s *Session) largeData(h header) error {
	st, wanted, err := s.largeFrame(h)
	if err != nil {
		return err
	}
	left := int(h.length)
	for left > 0 && wanted {
		b := s.get(classFor(left))
		n := min(left, len(b.data))
		if _, err := io.ReadFull(s.reader, b.data[:n]); err != nil {
			s.put(b)
			return lost(err)
		}
		b.w = n
		left -= n
		wanted = s.receive(st, b)
	}
	if left > 0 {
		if _, err := s.reader.Discard(left); err != nil {
			return lost(err)
		}
	}
	if st != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endsLocked(st, h.flags, CodeClosed)
	}
	return nil
}

// largeFrame finds the stream of a frame whose payload comes next, and says
// whether it is wanted.
func (s *Session) largeFrame(h header) (st *Stream, wanted bool, err error) {
	if int64(h.length) > int64(s.config.maxWindow()) {
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
	s.in += uint64(n)
	if w.since == 0 {
		w.since = s.now()
	}
	if n > 0 && st.finCame && !st.closed {
		st.resetLocked(CodeProtocol)
	}
	return !st.closed, nil
}

// receive delivers b, or appends it to what st received, unless nobody will
// read it.
func (s *Session) receive(st *Stream, b *buffer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.closed && s.err == nil {
		b.r = s.deliverLocked(st, b.data[:b.w])
	}
	if st.closed || s.err != nil {
		s.put(b)
		return false
	}
	if b.r == b.w {
		s.put(b)
		return true
	}
	st.appendReceivedLocked(b)
	st.wakeReaderLocked()
	return true
}
