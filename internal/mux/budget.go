package mux

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budget bounds the buffers of the sessions that share it: what was received and not read,
// and what was written and not sent. Windows bound that for each stream, but there may be
// many streams. Whoever makes it grow beyond Bytes first resets streams, with
// [CodeBudget]: see reclaim. It must not be copied.
type Budget struct {
	Bytes int64 // zero: 256 MiB

	held atomic.Int64

	mu       sync.Mutex        // guards sessions; it may be taken with a Session's lock held
	sessions map[*Session]bool // that live, or have bytes that nobody has read

	reclaiming sync.Mutex
}

const (
	// stalledAfter is how long a stream's bytes wait before nobody counts as reading them.
	stalledAfter = 250 * time.Millisecond

	// blockedAfter is how long a carrier takes nothing before its session may be ended for
	// the frames that are being written.
	blockedAfter = 5 * time.Second
)

func (b *Budget) limit() int64 { return cmp.Or(max(b.Bytes, 0), 256<<20) }

// holdMore accounts for n bytes of buffers, which may be negative.
func (s *Session) holdMore(n int) {
	s.bytesHeld.Add(int64(n))
	if b := s.config.Budget; b != nil {
		b.held.Add(int64(n))
	}
}

func (b *Budget) enter(s *Session) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions == nil {
		b.sessions = map[*Session]bool{}
	}
	b.sessions[s] = true
}

// leaveBudgetLocked is called when the session has ended, and when nobody has anything left
// to read of it.
func (s *Session) leaveBudgetLocked() {
	b := s.config.Budget
	if b == nil || s.err == nil || !s.unread.empty() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s)
}

// holding is what a stream holds, or a session whose carrier takes nothing.
type holding struct {
	session *Session
	stream  *Stream // nil: the frames that are being written
	bytes   int
	by      holder
	waits   time.Duration // since something of it was taken
}

func (h holding) isStalled() bool { return h.waits >= stalledAfter }

// holder is who lets buffers fill: a share, whose clients or targets don't read, or the
// session, if it has no share or its peer doesn't read.
type holder struct {
	session *Session
	share   uint64
}

// keep is called without a lock before more is held.
func (b *Budget) keep() {
	if b == nil || b.held.Load() <= b.limit() {
		return
	}
	b.reclaiming.Lock() // others wait: they would make it worse
	defer b.reclaiming.Unlock()
	if b.held.Load() > b.limit() {
		b.reclaim()
	}
}

// reclaim resets streams until the buffers are within seven eighths of the bound: close to it
// all streams would have to be looked at again soon. Only holders with more than their part lose
// streams. Streams that nobody reads go first, then the others. Of both, the streams of the holder
// with most go first: the largest, and of equals the oldest.
func (b *Budget) reclaim() {
	b.mu.Lock()
	sessions := slices.Collect(maps.Keys(b.sessions))
	b.mu.Unlock()
	var all []holding
	for _, s := range sessions {
		all = s.appendHoldings(all)
	}
	held, of := int64(0), map[holder]int{}
	for _, h := range all {
		held += int64(h.bytes)
		of[h.by] += h.bytes
	}
	slices.SortFunc(all, func(x, y holding) int {
		switch {
		case x.isStalled() && !y.isStalled():
			return -1
		case y.isStalled() && !x.isStalled():
			return 1
		}
		return cmp.Or(cmp.Compare(of[y.by], of[x.by]), cmp.Compare(y.bytes, x.bytes), cmp.Compare(y.waits, x.waits))
	})
	enough := b.limit() * 7 / 8
	part := int(enough) / max(len(of), 1)
	for _, h := range all {
		if held <= enough {
			return
		}
		if of[h.by] > part {
			of[h.by] -= h.bytes
			held -= int64(h.bytes)
			h.reclaim()
		}
	}
}

// appendHoldings appends what can be reclaimed, and is not about to be put back anyway.
func (s *Session) appendHoldings(all []holding) []holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, rest := s.now(), int(s.bytesHeld.Load())
	add := func(st *Stream, by holder, bytes int, waits time.Duration) {
		if rest -= bytes; bytes > 0 && !st.closed {
			all = append(all, holding{s, st, bytes, by, waits})
		}
	}
	for st := s.unread.first; st != nil; st = st.links[listUnread].next {
		bytes, by := 0, holder{share: st.share.key}
		for b := st.first; b != nil; b = b.next {
			bytes += len(b.data)
		}
		if by.share == 0 {
			by.session = s
		}
		add(st, by, bytes, now-st.window.takenAt)
	}
	if !s.carrierInUse || s.err != nil {
		return all
	}
	own, blocked := holder{session: s}, now-max(s.sentAt, s.lastTaken())
	for _, st := range s.streams {
		bytes := st.reserving
		for _, b := range st.frames[:st.nframes] {
			bytes += len(b.data)
		}
		add(st, own, bytes, blocked)
	}
	if blocked >= blockedAfter {
		all = append(all, holding{s, nil, rest, own, blocked})
	}
	return all
}

func (h holding) reclaim() {
	s, st := h.session, h.stream
	s.mu.Lock()
	if st == nil {
		if s.err == nil {
			s.loops.Go(func() { s.closeWithCause(newLostError(errBlocked)) }) // it may take its time
		}
		s.mu.Unlock()
		return
	}
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
