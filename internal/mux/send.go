package mux

import (
	"errors"
	"os"
	"sync"
	"time"
)

const (
	maxQueued  = 512 << 10     // bytes of payload that are queued in a session
	batchSize  = 4 * frameSize // bytes that are written at a time
	slowBatch  = frameSize     // the same, to a carrier that is slow
	freshSize  = 64 << 10      // bytes of small frames before a big one has its turn
	maxRefused = 256           // refusals that wait, if not more streams are allowed
)

// sender is what is to be sent. The session's lock guards it.
type sender struct {
	wake        sync.Cond // there is something to send, or the session ended
	control     list      // before data
	fresh, bulk list      // data, in turn
	room        list      // writers that wait for queued to sink
	queued      int       // bytes of payload in frames, those that are being written too
	turn        bool      // somebody writes to the carrier
	writing     bool      // there is a writeLoop
	idle        bool      // the last that was sent was pings alone
	batch       batch     // of whoever has the turn
	refused     []uint32  // ids of streams that are to be reset with CodeTooMany
	refusing    sync.Cond // fewer are, or the session ended
}

// writeTimeout is how long the carrier may take no bytes before the session ends.
const writeTimeout = 30 * time.Second

// slow is how long a batch may take before batches become small: big ones
// spare switches and system calls, and what is written can't be overtaken.
const slow = 5 * time.Millisecond

func (q *sender) init(mu *sync.Mutex) {
	q.wake.L, q.refusing.L = mu, mu
	q.control.kind = listControl
	q.fresh.kind = listFresh
	q.bulk.kind = listBulk
	q.room.kind = listRoom
	q.batch.limit = batchSize
}

// wakeLocked has what there is sent: by whoever is writing, or by writeLoop.
func (s *Session) wakeLocked() {
	switch {
	case s.turn || s.err != nil:
	case s.writing:
		s.wake.Signal()
	default:
		s.writing = true
		s.loops.Go(s.writeLoop)
	}
}

// controlLocked has a frame of st sent before data.
func (s *Session) controlLocked(st *Stream) {
	if !st.gone {
		s.control.push(st)
		s.wakeLocked()
	}
}

// refuseLocked resets a stream that there never was. A peer that causes many such
// resets and reads none is not read either: writeTimeout ends its session.
func (s *Session) refuseLocked(id uint32) {
	s.refused = append(s.refused, id)
	s.wakeLocked()
	for len(s.refused) >= max(maxRefused, s.config.maxStreams()) && s.err == nil {
		s.refusing.Wait()
	}
}

// readyLocked has st take its turn. A small frame of a stream that had nothing
// to send is interactive: it need not wait until all bulk had its turn.
func (s *Session) readyLocked(st *Stream, small bool) {
	if st.gone || st.links[listFresh].in || st.links[listBulk].in {
		return
	}
	if small {
		s.fresh.push(st)
	} else {
		s.bulk.push(st)
	}
	s.wakeLocked()
}

// roomLocked says whether n more bytes of st can be queued: writers wait for
// that in turn. Small writes of a stream that has nothing queued need not: bulk
// must not stop them.
func (s *Session) roomLocked(st *Stream, n int) bool {
	first := s.room.empty() || s.room.first == st
	return first && s.queued+n <= maxQueued || st.nframes == 0 && n <= smallFrame
}

// wakeRoomLocked has the next writer look for room, once there is enough for any.
func (s *Session) wakeRoomLocked() {
	if st := s.room.first; st != nil && s.queued+maxPayload <= maxQueued {
		st.writable.Broadcast()
	}
	s.opens.Signal()
}

func (st *Stream) enqueueLocked(b *buffer) {
	st.frames[st.nframes] = b
	st.nframes++
}

func (st *Stream) dequeueLocked() *buffer {
	b := st.frames[0]
	st.nframes--
	copy(st.frames[:], st.frames[1:])
	st.frames[len(st.frames)-1] = nil
	st.writable.Broadcast()
	return b
}

// dropFramesLocked gives up what is not sent.
func (s *Session) dropFramesLocked(st *Stream) {
	for st.nframes > 0 {
		b := st.dequeueLocked()
		s.queued -= b.w - headerSize
		s.put(b)
	}
	s.fresh.remove(st)
	s.bulk.remove(st)
	s.wakeRoomLocked()
}

// batch is what is written at a time. Small frames are put together.
type batch struct {
	s       *Session
	writes  []*buffer
	bytes   int
	limit   int  // of bytes
	payload int  // to be taken from queued
	open    bool // the last of writes takes small frames
}

// space returns room for n bytes of small frames.
func (b *batch) space(n int) []byte {
	if !b.open || b.writes[len(b.writes)-1].free() < n {
		b.writes = append(b.writes, b.s.get(classGather))
		b.open = true
	}
	w := b.writes[len(b.writes)-1]
	w.w += n
	b.bytes += n
	return w.data[w.w-n : w.w]
}

func (b *batch) header(h header) { h.put(b.space(headerSize)) }

func (b *batch) frame(f *buffer, h header) {
	b.payload += int(h.length)
	h.put(f.data)
	if f.w <= smallFrame {
		copy(b.space(f.w), f.data[:f.w])
		b.s.put(f)
		return
	}
	b.writes = append(b.writes, f)
	b.bytes += f.w
	b.open = false
}

// writeLoop writes what there is to send and nobody else is about to. Then it
// waits for more, because a start costs as much as a small write; it ends when
// it has sent nothing but pings, which is what a session does that is idle, and
// by restLocked.
func (s *Session) writeLoop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.writing = false }()
	for s.err == nil {
		switch {
		case !s.turn && s.sendLocked():
		case s.idle:
			return
		default:
			s.wake.Wait()
		}
	}
}

// restLocked has writeLoop end, if there is nothing to send. It is called now
// and then: a start in so many seconds costs nothing.
func (s *Session) restLocked() {
	s.idle = true
	s.wake.Signal()
}

// takeTurnLocked makes the caller the one who writes to the carrier, unless
// there is one, or several streams have something to send: then the others
// would not be read meanwhile; or the carrier is slow: then it is no place to
// wait. Who has the turn calls sendTurnLocked.
func (s *Session) takeTurnLocked() bool {
	if s.turn || s.err != nil || s.batch.limit != batchSize || s.bulk.first != s.bulk.last {
		return false
	}
	s.turn = true
	return true
}

// sendTurnLocked writes one batch and leaves the rest to writeLoop.
func (s *Session) sendTurnLocked() {
	s.turn = false
	s.sendLocked()
	if s.err == nil && s.pendingLocked() {
		s.wakeLocked()
	}
}

func (s *Session) pendingLocked() bool {
	return !s.control.empty() || !s.fresh.empty() || !s.bulk.empty() ||
		len(s.toSend) > 0 || len(s.pongs) > 0 || len(s.refused) > 0
}

// sendLocked writes one batch. It returns false if there is nothing to send.
func (s *Session) sendLocked() bool {
	b := &s.batch
	s.gatherPingsLocked(b)
	pings := b.bytes
	s.gatherControlLocked(b)
	s.gatherDataLocked(b)
	if len(b.writes) == 0 {
		return false
	}
	s.idle = b.bytes == pings
	s.turn = true
	s.mu.Unlock()
	began := s.now()
	err := s.write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errBlocked
	}
	if err != nil {
		s.fail(lost(err))
	}
	took := s.now() - began
	s.mu.Lock()
	s.turn = false
	b.limit = batchSize
	if took > slow {
		b.limit = slowBatch
	}
	s.queued -= b.payload
	b.payload = 0
	s.wakeRoomLocked()
	return true
}

func (s *Session) write(b *batch) error {
	var err error
	for i, w := range b.writes {
		if err == nil {
			s.carrier.SetWriteDeadline(time.Now().Add(writeTimeout))
			_, err = s.carrier.Write(w.data[:w.w])
		}
		s.put(w)
		b.writes[i] = nil
	}
	b.writes, b.bytes, b.open = b.writes[:0], 0, false
	if f, ok := s.carrier.(interface{ Flush() error }); ok && err == nil {
		s.carrier.SetWriteDeadline(time.Now().Add(writeTimeout))
		err = f.Flush()
	}
	return err
}

func (s *Session) gatherControlLocked(b *batch) {
	for i, id := range s.refused {
		if b.bytes >= b.limit {
			s.refused = s.refused[i:]
			s.refusing.Signal()
			return
		}
		b.header(header{kind: typeWindow, flags: flagACK | flagRST, id: id, length: CodeTooMany})
	}
	s.refused = nil
	s.refusing.Signal()
	for !s.control.empty() && b.bytes < b.limit {
		s.takeControlLocked(b, s.control.pop())
	}
}

// takeControlLocked sends what st has to say before data: that it is reset, or
// by how much its window opens.
func (s *Session) takeControlLocked(b *batch, st *Stream) {
	h := header{kind: typeWindow, flags: st.ackLocked(), id: st.id}
	if st.rstWanted {
		h.flags |= flagRST
		h.length = st.reset.Code
		b.header(h)
		s.forgetLocked(st)
		return
	}
	h.length = uint32(st.window.credit)
	st.window.credit = 0
	if h.flags != 0 || h.length > 0 {
		b.header(h)
	}
	s.gatherSpareLocked(b, st)
}

// ackLocked returns the flag that acknowledges st, for the first frame.
func (st *Stream) ackLocked() uint16 {
	if st.ackWanted {
		st.ackWanted = false
		return flagACK
	}
	return 0
}

func (s *Session) gatherDataLocked(b *batch) {
	small := 0
	for b.bytes < b.limit {
		var st *Stream
		if !s.fresh.empty() && (small < freshSize || s.bulk.empty()) {
			st = s.fresh.pop()
		} else if st = s.bulk.pop(); st == nil {
			return
		} else {
			small = 0
		}
		before := b.bytes
		s.takeDataLocked(b, st)
		small += b.bytes - before
	}
}

// takeDataLocked sends one frame of st, and its end if that was the last.
func (s *Session) takeDataLocked(b *batch, st *Stream) {
	h := header{id: st.id, flags: st.ackLocked()}
	if st.synWanted {
		st.synWanted = false
		s.unsent--
		s.opens.Signal()
		h.flags |= flagSYN
	}
	if st.nframes > 0 {
		f := st.dequeueLocked()
		h.kind, h.length = typeData, uint32(f.w-headerSize)
		s.out += uint64(h.length)
		b.frame(f, h)
		h.flags = 0
	} else if h.flags != 0 && !st.ended {
		h.kind = typeWindow
		b.header(h)
		return
	}
	if st.nframes > 0 {
		s.bulk.push(st)
		return
	}
	s.takeEndLocked(b, st, h.flags)
}

// takeEndLocked sends the end of st's data, if it was called for. It is a
// frame of its own: some peers would take it for the end of data that comes
// with it.
func (s *Session) takeEndLocked(b *batch, st *Stream, flags uint16) {
	h := header{kind: typeWindow, flags: flags, id: st.id, length: CodeClosed}
	if st.ended && !st.finSent {
		st.finSent = true
		h.flags |= flagFIN
	}
	abandoned := st.closed && !st.finCame
	if abandoned {
		h.flags |= flagRST
	}
	if h.flags != 0 {
		b.header(h)
	}
	if abandoned {
		s.forgetLocked(st)
		return
	}
	s.finishLocked(st)
}
