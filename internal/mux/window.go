package mux

import (
	"time"

	"github.com/causewayproject/causeway/internal/budget"
)

// # Windows
//
// A receive window is a promise of memory: the peer may send so many bytes that
// nobody has read yet. In yamux's spec ("Flow control") each window begins with 256
// KiB, and window updates give the peer credit for what was read. A stream moves at
// most its window in a round trip: 256 KiB are 2.6 MB/s if a round trip takes 100
// ms. So a window grows, by these rules:
//
//   - Growing. A window grows, to two to four times its size, while it is smaller
//     than about twice what is read in a round trip. Before that the reader must
//     have read half of the window, and half of it must be free. A reader that is
//     slow or stalls gets no larger window, whatever the peer sends.
//     While the Budget is half used, none grows.
//   - Sharing. All windows of a session share maxGrown. A stream may take as much
//     of it as is left for the others: half if it is the only one, a third each if
//     there are two, and so on. So a reader that stalls with a large window leaves
//     room for the others.
//   - Shrinking. A window that is larger than its share shrinks while it is used:
//     the peer gets no credit for a part of what was read.
//   - Releasing. When the peer has ended its data, or nobody will read, the rest of
//     the window goes back to the session at once.
//   - Reclaiming. An idle stream keeps its window until another one needs it. Then
//     the peer gets a window update with flagUnused and no length, which asks it to
//     give back what it doesn't use. The peer answers with the same flag and the
//     number of bytes. Other implementations of yamux take the question for a
//     window update of zero bytes, and keep their window.
//
// So a session promises at most initialWindow for each stream, and maxGrown for all
// together.
const (
	initialWindow = 256 << 10 // yamux's

	// maxGrown is how many bytes all windows of a session may grow together, and not by more than the
	// Budget has. One stream may have half of it, 64 MiB. In its start BBR has 2.9 times as much under way
	// as the line holds, which is 36 MB at 1 Gbit/s and 100 ms. A window that ends before that is taken for a
	// program that has no more to send, and the start goes on, with losses, for as long as the connection.
	maxGrown = 128 << 20

	// maxWindow is the largest window.
	maxWindow = initialWindow + maxGrown/2

	// minCredit and maxCredit bound how many bytes are read before the peer gets
	// credit for them. Less would cost more frames, and more would keep the peer
	// waiting. minCredit is three of the four full frames of the initial window.
	minCredit = 160 << 10
	maxCredit = 1 << 20

	// minRoundTrip is the shortest round trip for which windows are sized. On
	// loopback a ping takes less time than waking a reader.
	minRoundTrip = 300 * time.Microsecond

	// idleAfter is how long a stream must be without credit to count as idle.
	idleAfter = 2 * time.Second
)

// flowControl has the windows of a stream.
//
// Of the receive window each byte is in one place: the peer may still send it
// (receive), or it was received and not read (unread), or read without credit yet
// (consumed). So size = receive + unread + consumed, until the peer ends its data
// or the stream is closed here.
type flowControl struct {
	send         int           // what we may still send
	receive      int           // what the peer may still send
	size         int           // of our receive window
	unread       int           // received and not read
	consumed     int           // read, and the peer has no credit for it yet
	credit       int           // of the next window update
	takenAt      time.Duration // when a reader last took something, or the first of what waits came
	readBytes    int           // read since readSince
	readSince    time.Duration // instant of the first data; set anew about once a round trip
	askUnused    bool          // ask the peer to give back what it doesn't use
	returnUnused bool          // the peer has asked us
}

// creditThreshold is how many bytes are read before the peer gets credit for them.
func (w *flowControl) creditThreshold() int { return min(max(w.size/4, minCredit), maxCredit) }

// extraSize is how many bytes of the session's maxGrown the window has.
func (w *flowControl) extraSize() int { return w.size - initialWindow }

// grantCreditLocked accounts for n bytes that were read, and gives the peer credit
// once they reach the threshold. At that moment the window may change its size.
func (s *Session) grantCreditLocked(st *Stream, n int) {
	w := &st.window
	w.unread -= n
	if st.finReceived || st.removed {
		s.releaseWindowLocked(st)
		return
	}
	w.consumed += n
	w.readBytes += n
	if w.consumed < w.creditThreshold() {
		return
	}
	now := s.now()
	s.resizeWindowLocked(w, now)
	if now-s.probedAt >= measureInterval { // the round trip is measured while data flows
		s.sendProbeLocked()
	}
	if w.consumed > 0 {
		w.receive += w.consumed
		w.credit += w.consumed
		w.consumed = 0
		s.queueControlLocked(st)
	}
}

// resizeWindowLocked makes the window larger if it limits the peer, and smaller if
// it has more than its share.
func (s *Session) resizeWindowLocked(w *flowControl, now time.Duration) {
	roundTrip, took := s.roundTrip(), max(now-w.readSince, 1)
	want := w.size
	// flow is what is read in a round trip at the present speed. room is what the
	// peer can send in one: the window without what waits for credit.
	flow := int(min(float64(w.readBytes)*float64(roundTrip)/float64(took), float64(w.size)))
	room := w.size - w.creditThreshold()
	switch {
	case flow <= room/2:
		if took >= roundTrip {
			w.readSince, w.readBytes = now, 0
		}
	case w.readBytes >= w.size/2 && w.unread <= w.size/2:
		want = min(5*max(flow, w.readBytes), 4*w.size)
		w.readSince, w.readBytes = now, 0
	}
	if budget.IsHalfUsed(s.config.Budget) { // readers are slow enough as it is
		want = min(want, w.size)
	}
	// The share: half of what the other streams have left of maxGrown.
	fair := initialWindow + (min(maxGrown, budget.Size(s.config.Budget))-s.grownTotal+w.extraSize())/2
	if want > fair {
		s.reclaimIdleLocked(now)
	}
	// A window can shrink only by what was read: the peer may send the rest.
	by := max(min(want, fair)-w.size, -w.consumed)
	w.size += by
	w.consumed += by
	s.grownTotal += by
}

// reclaimIdleLocked asks the peer to give back the windows of idle streams.
func (s *Session) reclaimIdleLocked(now time.Duration) {
	if now-s.reclaimedAt < idleAfter/2 {
		return
	}
	s.reclaimedAt = now
	for _, st := range s.streams {
		if w := &st.window; w.extraSize() > 0 && now-w.readSince >= idleAfter {
			w.readSince, w.readBytes = now, 0
			w.askUnused = true
			s.queueControlLocked(st)
		}
	}
}

// releaseWindowLocked gives back to the session what st has of maxGrown and never
// needs again. If the stream is closed here, that is all. If the peer sends no
// more, it is all but what waits to be read.
func (s *Session) releaseWindowLocked(st *Stream) {
	w := &st.window
	size := initialWindow
	if !st.closed {
		size = max(size, w.unread)
	}
	if w.size > size {
		s.grownTotal -= w.size - size
		w.size = size
	}
}

// handleUnusedLocked handles a window update with flagUnused. Without a length the
// peer asks for what we don't use of its window. Otherwise it gives back so much of
// ours.
func (s *Session) handleUnusedLocked(st *Stream, length uint32) error {
	w := &st.window
	n := int(length)
	switch {
	case length == 0:
		w.returnUnused = true
		s.queueControlLocked(st)
	case int64(length) > int64(w.receive):
		return protocolError("%d bytes of a window of %d are given back", n, w.receive)
	default:
		w.receive -= n
		w.consumed += n
		by := min(w.consumed, w.extraSize())
		w.consumed -= by
		w.size -= by
		s.grownTotal -= by
	}
	return nil
}

// gatherUnusedLocked adds our question, and our answer, to the batch.
func (s *Session) gatherUnusedLocked(b *batch, st *Stream) {
	w := &st.window
	if w.askUnused {
		w.askUnused = false
		b.addHeader(header{kind: typeWindow, flags: flagUnused, id: st.id})
	}
	if n := w.send - initialWindow; w.returnUnused && n > 0 {
		w.send -= n
		b.addHeader(header{kind: typeWindow, flags: flagUnused, id: st.id, length: uint32(n)})
	}
	w.returnUnused = false
}
