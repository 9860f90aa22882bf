package mux

import "time"

// A receive window is a promise of memory: the peer may send so many bytes before
// anybody has read them. A stream moves at most its window in a round trip: with
// yamux's 256 KiB that is 2.6 MB/s where a round trip takes 100 ms. So a window
// grows, by these rules:
//
//   - It grows while it is less than about twice what is read in a round trip, to
//     two to four times its size. First the reader must have read half of the
//     present window, and half of it must be free: a reader that is slow, or
//     stalls, gets no larger window, whatever the peer sends.
//   - All windows of a session share maxGrown. A stream may take as much of that
//     as it leaves to the others: half of it if it is the only one, a third each
//     if there are two, and so on. So a reader that stalls with a large window
//     leaves room for the others. A window that is too large shrinks while it is
//     used: for a part of what was read the peer gets no credit.
//   - What can't be used any more goes back to the session at once: when the peer
//     has ended what it sends, and when nobody will read. An idle stream keeps its
//     window until another one needs it. Then the peer is asked to give back what
//     it doesn't use, by a frame that other implementations of yamux ignore.
//
// So a session never promises more than initialWindow a stream and maxGrown.
const (
	initialWindow = 256 << 10 // yamux's

	// maxGrown is how many bytes all windows of a session may grow together. One
	// stream may have half of it, 32 MiB: that carries 1 Gbit/s where a round trip
	// takes 200 ms (25 MB), and is the largest receive buffer that Linux 6.18 gives
	// a TCP connection by default, so that a larger window would wait for TCP.
	maxGrown = 64 << 20

	// maxWindow is what a window grows to at most.
	maxWindow = initialWindow + maxGrown/2

	// minCredit and maxCredit bound how much is read before the peer gets credit
	// for it: less costs frames, and more would keep the peer waiting. Of the
	// initial window it is three full frames of four.
	minCredit = 160 << 10
	maxCredit = 1 << 20

	// minRoundTrip is the shortest that windows are made for. On loopback a ping
	// takes less than it takes until a reader has its turn.
	minRoundTrip = 300 * time.Microsecond

	// idleAfter is how long a stream must have got no credit before its peer is
	// asked to give back its window.
	idleAfter = 2 * time.Second
)

// windows are the flow control of a stream.
type windows struct {
	send     int           // what we may still send
	receive  int           // what the peer may still send
	size     int           // of our receive window
	unread   int           // received and not read
	consumed int           // read, and the peer got no credit for it yet
	credit   int           // of the next update
	taken    int           // read since the instant since
	since    time.Duration // when data came first; begins anew about once a round trip
	ask      bool          // the peer is to be asked to give back what it doesn't use
	giveBack bool          // the peer asks us
}

// part is how much is read before the peer gets credit for it.
func (w *windows) part() int { return min(max(w.size/4, minCredit), maxCredit) }

// grown is what the window has of the session's maxGrown.
func (w *windows) grown() int { return w.size - initialWindow }

// creditLocked accounts for n bytes that were read, and gives the peer credit for
// them now and then.
func (s *Session) creditLocked(st *Stream, n int) {
	w := &st.window
	w.unread -= n
	if st.finCame || st.gone {
		s.releaseLocked(st)
		return
	}
	w.consumed += n
	w.taken += n
	if w.consumed < w.part() {
		return
	}
	now := s.now()
	s.fitLocked(w, now)
	s.measureLocked(now)
	if w.consumed > 0 {
		w.receive += w.consumed
		w.credit += w.consumed
		w.consumed = 0
		s.controlLocked(st)
	}
}

// fitLocked makes the window larger if it limits the peer, and smaller if others
// need what it has.
func (s *Session) fitLocked(w *windows, now time.Duration) {
	roundTrip, took := s.roundTrip(), max(now-w.since, 1)
	want := w.size
	// What would be read in a round trip, if it went on like that; and what the
	// window has room for, less what is read before the peer gets credit.
	flow := int(min(float64(w.taken)*float64(roundTrip)/float64(took), float64(w.size)))
	room := w.size - w.part()
	switch {
	case flow <= room/2:
		if took >= roundTrip {
			w.since, w.taken = now, 0
		}
	case w.taken >= w.size/2 && w.unread <= w.size/2:
		want = min(5*max(flow, w.taken), 4*w.size)
		w.since, w.taken = now, 0
	}
	// As much as it leaves to the others.
	fair := initialWindow + (maxGrown-s.grown+w.grown())/2
	if want > fair {
		s.reclaimLocked(now)
	}
	by := max(min(want, fair)-w.size, -w.consumed)
	w.size += by
	w.consumed += by
	s.grown += by
}

// reclaimLocked asks the peers of streams that are idle for what their windows
// have grown by.
func (s *Session) reclaimLocked(now time.Duration) {
	if now-s.reclaimed < idleAfter/2 {
		return
	}
	s.reclaimed = now
	for _, st := range s.streams {
		if w := &st.window; w.grown() > 0 && now-w.since >= idleAfter {
			w.since, w.taken = now, 0
			w.ask = true
			s.controlLocked(st)
		}
	}
}

// releaseLocked gives the session what the window of st has and never needs
// again: all, if nobody reads; what waits to be read, if the peer sends no more.
func (s *Session) releaseLocked(st *Stream) {
	w := &st.window
	size := initialWindow
	if !st.closed {
		size = max(size, w.unread)
	}
	if w.size > size {
		s.grown -= w.size - size
		w.size = size
	}
}

// openedLocked is an update of the peer's.
func (st *Stream) openedLocked(delta uint32) {
	st.window.send = min(st.window.send+int(delta), 1<<31-1)
	st.writable.Signal()
}

// spareLocked is a frame about the part of a window that is not used: without a
// length the peer asks for it, else it gives back so much of ours.
func (s *Session) spareLocked(st *Stream, length uint32) error {
	w := &st.window
	n := int(length)
	switch {
	case length == 0:
		w.giveBack = true
		s.controlLocked(st)
	case int64(length) > int64(w.receive):
		return protocolError("%d bytes of a window of %d are given back", n, w.receive)
	default:
		w.receive -= n
		w.consumed += n
		by := min(w.consumed, w.grown())
		w.consumed -= by
		w.size -= by
		s.grown -= by
	}
	return nil
}

// gatherSpareLocked sends what spareLocked gets on the other side.
func (s *Session) gatherSpareLocked(b *batch, st *Stream) {
	w := &st.window
	if w.ask {
		w.ask = false
		b.header(header{kind: typeWindow, flags: flagSpare, id: st.id})
	}
	if n := w.send - initialWindow; w.giveBack && n > 0 {
		w.send -= n
		b.header(header{kind: typeWindow, flags: flagSpare, id: st.id, length: uint32(n)})
	}
	w.giveBack = false
}
