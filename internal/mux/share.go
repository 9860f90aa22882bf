package mux

import "github.com/causewayproject/causeway/internal/budget"

// maxLag is how many bytes a share may catch up after a moment without any to send. One
// stream can't always have the next frame ready.
const maxLag = 4 * frameSize

// share is a group of streams that has one part of the carrier.
type share struct {
	key     uint64
	holder  budget.Holder           // see SetShare
	streams int                     // that belong to it
	sent    int64                   // bytes of bulk, on the scale of the queue's now
	head    [sharedLists]*Stream    // stands in the queue for all of them
	waiting [sharedLists]streamList // the others that want to be there
}

// SetShare puts the stream into the share with that key; a new stream is in share 0. All
// shares of a session send the same number of bytes of bulk, as long as they have some,
// however many streams each has. The peer has shares of its own for what it sends. The first call
// for a share says who it is for the Budget: In is the session's Holder if nil, and By the key.
func (st *Stream) SetShare(key uint64, holder budget.Holder) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.removed || st.share.key == key {
		return
	}
	bulk, room := s.bulk.remove(st), s.roomWaiters.remove(st)
	s.leaveShareLocked(st)
	sh := s.shares[key]
	if key == 0 {
		sh = &s.own
	}
	if sh == nil {
		sh = &share{key: key, holder: holder, sent: s.bulk.now}
		if s.shares == nil {
			s.shares = map[uint64]*share{}
		}
		s.shares[key] = sh
	}
	sh.streams++
	st.share = sh
	if bulk {
		s.bulk.push(st)
	}
	if room {
		s.roomWaiters.push(st)
		s.wakeRoomWaiterLocked()
	}
}

// StreamsOf returns how many streams are open in the share with that key, not 0, and in others whose holder has
// the same By, unless that is nil.
func (s *Session) StreamsOf(key uint64, holder budget.Holder) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shares {
		if sh.key == key || holder.By != nil && sh.holder.By == holder.By {
			n += sh.streams
		}
	}
	return n
}

// leaveShareLocked is called when st stands in no queue.
func (s *Session) leaveShareLocked(st *Stream) {
	sh := st.share
	if sh.streams--; sh.streams == 0 {
		delete(s.shares, sh.key)
	}
}

// shareQueue is a queue of streams in which each share has one place.
type shareQueue struct {
	heads streamList
	now   int64 // how many bytes each share has sent that always had some
}

func (q *shareQueue) empty() bool { return q.heads.empty() }

// first returns the stream whose turn it is; nil if there is none.
func (q *shareQueue) first() *Stream { return q.heads.first }

// hasOthers reports whether more than one stream is in the queue.
func (q *shareQueue) hasOthers() bool {
	st := q.heads.first
	return q.hasOtherShares() || st != nil && !st.share.waiting[q.heads.kind].empty()
}

// hasOtherShares reports whether more than one share is in the queue.
func (q *shareQueue) hasOtherShares() bool { return q.heads.first != q.heads.last }

// isAlone reports whether no other stream of its share is in the queue.
func (q *shareQueue) isAlone(st *Stream) bool {
	head := st.share.head[q.heads.kind]
	return head == nil || head == st && st.share.waiting[q.heads.kind].empty()
}

// push appends st, unless it is in the queue.
func (q *shareQueue) push(st *Stream) {
	kind := q.heads.kind
	switch sh := st.share; {
	case st.links[kind].in:
	case sh.head[kind] == nil:
		sh.sent = max(sh.sent, q.now-maxLag)
		sh.head[kind] = st
		q.heads.push(st)
	default:
		sh.waiting[kind].kind = kind
		sh.waiting[kind].push(st)
	}
}

// remove removes st and reports whether it was in the queue. If it stood for its share,
// the next stream does, at the end of the queue.
func (q *shareQueue) remove(st *Stream) bool {
	kind, sh := q.heads.kind, st.share
	switch {
	case !st.links[kind].in:
		return false
	case sh.head[kind] != st:
		sh.waiting[kind].remove(st)
	default:
		q.heads.remove(st)
		if sh.head[kind] = sh.waiting[kind].pop(); sh.head[kind] != nil {
			q.heads.push(sh.head[kind])
		}
	}
	return true
}

// pop removes and returns the first stream of those whose share has sent least; nil if
// there is none. There are never many heads, since so few frames are queued.
func (q *shareQueue) pop() *Stream {
	least := q.heads.first
	if least == nil {
		return nil
	}
	for st := least; st != nil; st = st.links[q.heads.kind].next {
		if st.share.sent < least.share.sent {
			least = st
		}
	}
	q.now = max(q.now, least.share.sent)
	q.remove(least)
	return least
}
