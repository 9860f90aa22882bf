package mux

import "time"

// maxGrown is how many bytes all windows of a session may grow together.
const maxGrown = 16 << 20

// windows are the flow control of a stream.
type windows struct {
	send     int           // what we may still send
	receive  int           // what the peer may still send
	size     int           // of our receive window
	consumed int           // read since the window was last opened
	credit   int           // by how much the next update opens the peer's
	since    time.Duration // instant when it was opened last, or when data came first
}

// creditLocked opens the peer's window once half of it was read: less often
// would stall it, more often costs frames.
func (s *Session) creditLocked(st *Stream, n int) {
	w := &st.window
	w.consumed += n
	if st.finCame || st.gone || w.consumed < w.size/2 {
		return
	}
	now := s.now()
	grow := s.growthLocked(w, now-w.since)
	s.grown += grow
	w.size += grow
	w.since = now
	w.receive += w.consumed + grow
	w.credit += w.consumed + grow
	w.consumed = 0
	s.controlLocked(st)
	s.measureLocked(now)
}

// growthLocked is by how much to widen a window of which half was read in
// took. A window that limits the peer is used up once in a round trip.
func (s *Session) growthLocked(w *windows, took time.Duration) int {
	if s.minRTT == 0 || took >= s.minRTT/4*3 {
		return 0
	}
	return max(0, min(w.size, s.config.maxWindow()-w.size, maxGrown-s.grown))
}

// openedLocked is an update of the peer's.
func (st *Stream) openedLocked(delta uint32) {
	st.window.send = min(st.window.send+int(delta), 1<<31-1)
	st.writable.Signal()
}
