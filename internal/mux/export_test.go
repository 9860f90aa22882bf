package mux

import "net"

// MaxUnaccepted is how many streams wait.
const MaxUnaccepted = maxUnaccepted

// Held returns how many bytes of buffers a session has taken and not given back.
func (s *Session) Held() int { return int(s.bytesHeld.Load()) }

// Queued returns how many bytes of payload wait to be sent.
func (s *Session) Queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queuedBytes
}

// Leftovers counts what a session without open streams must not have.
func (s *Session) Leftovers() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[string]int{
		"streams":  len(s.streams),
		"incoming": s.incomingStreams,
		"accepted": s.handedOver,
		"ending":   s.ending,
		"unsent":   s.unsentSYNs,
		"queued":   s.queuedBytes,
		"grown":    s.grownTotal,
		"refused":  len(s.refusals),
		"shares":   len(s.shares) + s.own.streams,
		"buffers":  int(s.bytesHeld.Load()),
	}
	for name, l := range map[string]*streamList{"control": &s.controlQueue, "fresh": &s.interactive, "bulk": &s.bulk.heads, "room": &s.roomWaiters.heads, "accept": &s.acceptQueue, "acks": &s.ackQueue} {
		if !l.empty() {
			left[name] = 1
		}
	}
	for name, n := range left {
		if n == 0 {
			delete(left, name)
		}
	}
	return left
}

// SetNextID sets the id of the next stream.
func (s *Session) SetNextID(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID = uint64(id)
}

// Grown returns by how many bytes windows exceed their initial size.
func (s *Session) Grown() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grownTotal
}

// Window returns the size of the receive window.
func (st *Stream) Window() int {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.window.size
}

const (
	MaxGrown   = maxGrown
	MaxWindow  = maxWindow
	Initial    = initialWindow
	IdleAfter  = idleAfter
	MaxPayload = maxPayload
	MaxRefused = maxRefused
	MaxEnding  = maxEnding
	MaxQueued  = maxQueued
	MaxUnsent  = maxUnsent
	BatchSize  = batchSize
)

// BufferBytes returns how much memory the buffers have that hold what was
// received.
func (st *Stream) BufferBytes() int {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	n := 0
	for b := st.first; b != nil; b = b.next {
		n += len(b.data)
	}
	return n
}

// FrameBytes returns how much memory the frames have that wait to be sent.
func (st *Stream) FrameBytes() int {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	n := 0
	for _, b := range st.frames[:st.nframes] {
		n += len(b.data)
	}
	return n
}

// ReadAll handles what the carrier brings until it ends, without a writer, and
// returns the streams that the peer opened.
func ReadAll(carrier net.Conn, c *Config) (*Session, []*Stream) {
	s := newSession(carrier, c, false)
	s.writeLoopRuns = true // as far as it knows
	var streams []*Stream
	for {
		_, err := s.readFrame()
		if err != nil {
			s.closeWithCause(err)
			return s, streams
		}
		s.mu.Lock()
		for st := s.nextAcceptedLocked(); st != nil; st = s.nextAcceptedLocked() {
			streams = append(streams, st)
		}
		s.mu.Unlock()
	}
}

// Offered reports whether a DeliverTo waits for what comes.
func (st *Stream) Offered() bool {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.direct != nil && st.first == nil
}

// Reading reports whether the session has a buffer for what comes. It is for a
// session that waits.
func (s *Session) Reading() bool { return s.reader != nil }

// Writing reports whether there is a writeLoop.
func (s *Session) Writing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLoopRuns
}
