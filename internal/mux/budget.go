package mux

import (
	"cmp"
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

// Keep counts n bytes of memory that the stream's owner has for what it reads, instead of
// those of the last call.
func (st *Stream) Keep(n int) {
	budget.Keep(st.session.config.Budget)
	st.session.holdMore(n - int(st.kept.Load()))
	st.setKept(n)
}

func (st *Stream) setKept(n int) {
	st.keptSince.Store(int64(st.session.now()))
	st.kept.Store(int64(n))
}

// AppendHoldings makes the session a member of its Budget. The holder is a share, whose clients
// or targets don't read, or the other end of the session, if there is no share or that end
// doesn't read.
func (s *Session) AppendHoldings(all []budget.Holding) []budget.Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, rest := s.now(), int(s.bytesHeld.Load())
	other := budget.Holder{In: s.config.Holder, By: s.config.Holder}
	add := func(st *Stream, sh *share, bytes int, waits time.Duration) {
		holder := budget.Holder{In: cmp.Or(sh.holder.In, s.config.Holder), By: cmp.Or(sh.holder.By, any(sh.key))}
		if sh.key == 0 {
			holder = other
		}
		if rest -= bytes; bytes > 0 && !st.closed {
			all = append(all, budget.Holding{Holder: holder, Bytes: bytes, Waits: waits, Reclaim: st.reclaim})
		}
	}
	for st := s.unread.first; st != nil; st = st.links[listUnread].next {
		bytes := 0
		for b := st.first; b != nil; b = b.next {
			bytes += len(b.data)
		}
		add(st, st.share, bytes, now-st.window.takenAt)
	}
	taken, _ := s.progress()
	stuck := now - max(s.sentAt, taken)
	for _, st := range s.streams {
		add(st, st.share, int(st.kept.Load()), now-time.Duration(st.keptSince.Load()))
		for _, b := range st.frames[:st.nframes] {
			if s.carrierInUse { // else they are sent at once
				add(st, &s.own, len(b.data), stuck)
			}
		}
	}
	if began := time.Duration(s.fillingSince.Load()); !s.carrierInUse || began != 0 {
		stuck = now - cmp.Or(began, now)
	}
	if stuck >= budget.BlockedAfter && s.err == nil {
		all = append(all, budget.Holding{Holder: other, Bytes: rest, Waits: stuck, Reclaim: s.endBlocked})
	}
	return all
}

// endBlocked ends a session whose carrier takes nothing of what is being written, or brings no
// more of a payload.
func (s *Session) endBlocked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.loops.Go(func() { s.closeWithCause(newLostError(errBlocked)) }) // it may take its time
	}
}

// reclaim resets the stream, and drops what it has received.
func (st *Stream) reclaim() {
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
