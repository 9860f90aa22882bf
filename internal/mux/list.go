package mux

// The lists that a stream can be in, at the same time.
const (
	listControl = iota // has a frame that goes before data
	listFresh          // has a small frame, and had nothing to send before
	listBulk           // has frames
	listRoom           // waits for room in the session's queue
	listAccept         // waits for Accept
	listAck            // is to be acknowledged before long
	lists
)

type link struct {
	prev, next *Stream
	in         bool
}

// list is a queue of streams from which any can be taken in constant time.
type list struct {
	kind        int
	first, last *Stream
}

func (l *list) empty() bool { return l.first == nil }

// push appends st, unless it is there.
func (l *list) push(st *Stream) {
	k := &st.links[l.kind]
	if k.in {
		return
	}
	*k = link{prev: l.last, in: true}
	if l.last == nil {
		l.first = st
	} else {
		l.last.links[l.kind].next = st
	}
	l.last = st
}

// remove takes st out, if it is there.
func (l *list) remove(st *Stream) {
	k := &st.links[l.kind]
	if !k.in {
		return
	}
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.links[l.kind].next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.links[l.kind].prev = k.prev
	}
	*k = link{}
}

func (l *list) pop() *Stream {
	st := l.first
	if st != nil {
		l.remove(st)
	}
	return st
}
