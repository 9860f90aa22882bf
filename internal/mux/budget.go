package mux

import (
	"time"

	"github.com/causewayproject/causeway/internal/budget"
)

// holdMore accounts for n bytes of buffers, which may be negative.
func (s *Session) holdMore(n int) {
	s.bytesHeld.Add(int64(n))
	budget.Add(s.config.Budget, n)
}

// leaveBudgetLocked is called when the session has ended, and when nobody has anything left
// to read of it.
func (s *Session) leaveBudgetLocked() {
	if s.err != nil && s.unread.empty() {
		budget.Leave(s.config.Budget, s)
	}
}

// AppendHoldings makes the session a member of its Budget. The holder is a share, whose clients or
// targets don't read, or the other end of the session, if there is no share or that end doesn't read.
func (s *Session) AppendHoldings(all []budget.Holding) []budget.Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, rest := s.now(), int(s.bytesHeld.Load())
	own := budget.Holder{Of: s.config.Holder}
	if own.Of == nil {
		own.Of = s
	}
	add := func(st *Stream, by budget.Holder, bytes int, waits time.Duration) {
		if rest -= bytes; bytes > 0 && !st.closed {
			all = append(all, budget.Holding{Item: st, By: by, Bytes: bytes, Waits: waits})
		}
	}
	for st := s.unread.first; st != nil; st = st.links[listUnread].next {
		bytes, by := 0, budget.Holder{Share: st.share.key}
		for b := st.first; b != nil; b = b.next {
			bytes += len(b.data)
		}
		if by.Share == 0 {
			by = own
		}
		add(st, by, bytes, now-st.window.takenAt)
	}
	if !s.carrierInUse || s.err != nil {
		return all
	}
	blocked := now - max(s.sentAt, s.lastTaken())
	for _, st := range s.streams {
		bytes := st.reserving
		for _, b := range st.frames[:st.nframes] {
			bytes += len(b.data)
		}
		add(st, own, bytes, blocked)
	}
	if blocked >= budget.BlockedAfter {
		all = append(all, budget.Holding{Item: blockedSession{s}, By: own, Bytes: rest, Waits: blocked})
	}
	return all
}

// blockedSession is the frames that are being written to a carrier that takes nothing.
type blockedSession struct{ *Session }

// Reclaim ends the session.
func (s blockedSession) Reclaim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.loops.Go(func() { s.closeWithCause(newLostError(errBlocked)) }) // it may take its time
	}
}

// Reclaim resets the stream, and drops what it has received.
func (st *Stream) Reclaim() {
	s := st.session
	s.mu.Lock()
	sink := st.sink
	if !st.closed {
		st.reset = &ResetError{Code: CodeBudget}
		if s.err == nil {
			s.notifyResetLocked(st, false) // what had come is dropped
		}
		st.resetStreamLocked(CodeBudget)
	}
	s.mu.Unlock()
	if sink != nil {
		sink.SetWriteDeadline(time.Unix(1, 0)) // the stream's WriteTo waits for it
	}
}
