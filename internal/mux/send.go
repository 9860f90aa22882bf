package mux

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	maxQueued        = 512 << 10     // bytes of payload queued in a session; twice that if shares compete
	batchSize        = 4 * frameSize // bytes written at a time
	slowBatchSize    = frameSize     // the same for a carrier that is slow
	interactiveBurst = 64 << 10      // bytes of interactive frames before a bulk frame
	maxRefused       = 256           // refusals that wait, unless MaxStreams is more
)

// sender holds what is to be sent. The session's lock guards it.
//
// Streams with frames stand in one of two queues. In interactive are streams whose
// first frame is small: they go ahead of bulk, up to interactiveBurst bytes. So a
// keystroke need not wait for a frame of each download, and a flood of small
// frames does not stop the downloads. Each turn sends one frame of a stream, and
// the stream goes to the end of bulk if it has more. Shares send as many bytes of bulk as
// each other, and have one place each among those that wait for room.
type sender struct {
	writerWake    sync.Cond  // writeLoop has something to send, or the session ended
	controlQueue  streamList // streams with a control frame
	interactive   streamList // streams with data, the first frame of which is small
	bulk          shareQueue // streams with other data
	roomWaiters   shareQueue // streams whose Write waits for queuedBytes to fall
	queuedBytes   int        // payload in frames, including those being written
	carrierInUse  bool       // a goroutine writes to the carrier, or is about to
	writeLoopRuns bool       // there is a writeLoop
	sentOnlyPings bool       // the last batch had only pings
	batch         batch      // of the goroutine that set carrierInUse
	refusals      []uint32   // ids of streams to reset with CodeTooMany
	mayRead       sync.Cond  // readLoop waits: for fewer refusals, unaccepted or ending streams, or the end
}

const (
	// writeTimeout is how long the carrier may take no bytes, and the peer send none, before the
	// session ends.
	writeTimeout = 30 * time.Second
	// maxWriteWait is how long the carrier may take none though the peer sends some.
	maxWriteWait = 5 * time.Minute
)

// slowWrite is how long the write of a batch may take before batches become small.
// Large batches need fewer system calls. But nothing can overtake a batch, so on a
// slow carrier an interactive frame would wait for all of it. Below slowRate, in bytes a second, a
// frame is sent in parts. Batches grow again by a factor of two: the kernel takes the first one at once.
const (
	slowWrite = 5 * time.Millisecond
	slowRate  = 64 << 10
)

func (q *sender) init(mu *sync.Mutex) {
	q.writerWake.L, q.mayRead.L = mu, mu
	q.controlQueue.kind = listControl
	q.interactive.kind = listInteractive
	q.bulk.heads.kind = listBulk
	q.roomWaiters.heads.kind = listRoom
	q.batch.limit = batchSize
}

// wakeWriterLocked makes sure that what is queued is sent. If a goroutine has the
// carrier, it will look again; otherwise writeLoop does it.
func (s *Session) wakeWriterLocked() {
	switch {
	case s.carrierInUse || s.err != nil:
	case s.writeLoopRuns:
		s.writerWake.Signal()
	default:
		s.writeLoopRuns = true
		s.loops.Go(s.writeLoop)
	}
}

// queueControlLocked queues st for a control frame, which is sent before data.
func (s *Session) queueControlLocked(st *Stream) {
	if !st.removed {
		s.controlQueue.push(st)
		s.wakeWriterLocked()
	}
}

// queueRefusalLocked queues a reset for a stream that was not accepted. If a peer
// causes many such resets and doesn't read them, it waits, and so nothing more is
// read from this peer. writeTimeout then ends the session.
func (s *Session) queueRefusalLocked(id uint32) {
	s.refusals = append(s.refusals, id)
	s.wakeWriterLocked()
	for len(s.refusals) >= max(maxRefused, s.config.maxStreams()) && s.err == nil {
		s.mayRead.Wait()
	}
}

// queueDataLocked queues st for its next frame, or its end, unless it is queued.
// small says that the frame is small, and thus interactive.
func (s *Session) queueDataLocked(st *Stream, small bool) {
	if st.removed || st.links[listInteractive].in || st.links[listBulk].in {
		return
	}
	if small {
		s.interactive.push(st)
	} else {
		s.bulk.push(st)
	}
	s.wakeWriterLocked()
}

// hasRoomLocked reports whether n more bytes of st can be queued. Writers get room
// in the order of their turns. A small write of a stream that has nothing queued always
// finds room, so that bulk data doesn't stop it. A stream whose share has nothing else
// queued need not wait for other shares, or it would have nothing to send in its turn.
func (s *Session) hasRoomLocked(st *Stream, n int) bool {
	if len(s.shares) > 0 && s.bulk.isAlone(st) && s.queuedBytes+n <= 2*maxQueued {
		return true
	}
	first := s.roomWaiters.empty() || s.roomWaiters.first() == st
	return first && s.queuedBytes+n <= maxQueued || st.nframes == 0 && n <= smallFrame
}

// wakeRoomWaiterLocked wakes the first writer that waits for room, if there is
// enough for a full frame, and an Open.
func (s *Session) wakeRoomWaiterLocked() {
	if st := s.roomWaiters.first(); st != nil && s.queuedBytes+maxPayload <= maxQueued {
		st.writable.Broadcast()
	}
	s.openReady.Signal()
}

func (st *Stream) pushFrameLocked(b *buffer) {
	st.frames[st.nframes] = b
	st.nframes++
}

func (st *Stream) popFrameLocked() *buffer {
	b := st.frames[0]
	st.nframes--
	copy(st.frames[:], st.frames[1:])
	st.frames[len(st.frames)-1] = nil
	st.writable.Broadcast()
	return b
}

// dropFramesLocked drops what st has not sent.
func (s *Session) dropFramesLocked(st *Stream) {
	for st.nframes > 0 {
		b := st.popFrameLocked()
		s.queuedBytes -= b.w - headerSize
		s.putBuffer(b)
	}
	s.interactive.remove(st)
	s.bulk.remove(st)
	s.wakeRoomWaiterLocked()
}

// batch is what is written at a time. Small frames are copied into one buffer.
type batch struct {
	s            *Session
	writes       []*buffer
	bytes        int
	limit        int  // gather no more once bytes reaches it
	payload      int  // of bytes; subtracted from queuedBytes after the write
	lastIsShared bool // the last of writes is for small frames
}

// smallSpace adds n bytes to the batch, in a buffer that small frames share, and
// returns them.
func (b *batch) smallSpace(n int) []byte {
	if !b.lastIsShared || b.writes[len(b.writes)-1].freeSpace() < n {
		b.writes = append(b.writes, b.s.getBuffer(classGather))
		b.lastIsShared = true
	}
	w := b.writes[len(b.writes)-1]
	w.w += n
	b.bytes += n
	return w.data[w.w-n : w.w]
}

func (b *batch) addHeader(h header) { h.put(b.smallSpace(headerSize)) }

func (b *batch) addFrame(f *buffer, h header) {
	h.put(f.data)
	if f.w <= smallFrame {
		copy(b.smallSpace(f.w), f.data[:f.w])
		b.s.putBuffer(f)
		return
	}
	b.writes = append(b.writes, f)
	b.bytes += f.w
	b.lastIsShared = false
}

// writeLoop sends what is queued, unless another goroutine has the carrier. Then it
// waits for more, because starting a goroutine costs as much as a small write. It
// ends after a batch of only pings, as an idle session sends them, and if checkAlive
// finds it idle.
func (s *Session) writeLoop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.writeLoopRuns = false }()
	for s.err == nil {
		switch {
		case !s.carrierInUse && s.sendBatchLocked():
			s.yieldToWritersLocked()
		case s.sentOnlyPings:
			return
		default:
			s.writerWake.Wait()
		}
	}
}

// yieldToWritersLocked lets writers run if only one of several shares has bulk to send. A
// share with one stream has used up its frames, and its writer was woken; where all CPUs
// are busy it would else run after the next batch of the others, and so miss its turn.
func (s *Session) yieldToWritersLocked() {
	if len(s.shares) > 0 && !s.bulk.empty() && !s.bulk.hasOtherShares() {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
}

// takeCarrierLocked gives the carrier to the caller, which then must call
// sendDirectLocked. It returns false in three cases: another goroutine has the
// carrier; several streams have bulk data, and their Readers would not be read
// while the caller writes; or the carrier is slow.
func (s *Session) takeCarrierLocked() bool {
	if s.carrierInUse || s.err != nil || s.batch.limit != batchSize || s.bulk.hasOthers() {
		return false
	}
	s.carrierInUse = true
	return true
}

// sendDirectLocked sends one batch in the caller's goroutine, and leaves the rest
// to writeLoop.
func (s *Session) sendDirectLocked() {
	s.carrierInUse = false
	s.sendBatchLocked()
	if s.err == nil && s.hasPendingLocked() {
		s.wakeWriterLocked()
	}
}

func (s *Session) hasPendingLocked() bool {
	return !s.controlQueue.empty() || !s.interactive.empty() || !s.bulk.empty() ||
		len(s.pingsToSend) > 0 || len(s.pongsToSend) > 0 || len(s.refusals) > 0
}

// sendBatchLocked gathers one batch and writes it, without the lock. It returns
// false if there is nothing to send.
func (s *Session) sendBatchLocked() bool {
	b := &s.batch
	s.gatherPingsLocked(b)
	pings := b.bytes
	s.gatherControlLocked(b)
	s.gatherDataLocked(b)
	if len(b.writes) == 0 {
		return false
	}
	s.sentOnlyPings = b.bytes == pings
	s.carrierInUse = true
	began, sent := s.now(), b.bytes
	s.sentAt = began
	s.mu.Unlock()
	err := s.writeBatch(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errBlocked
	}
	if err != nil {
		s.closeWithCause(newLostError(err))
	}
	took := s.now() - began
	s.mu.Lock()
	s.carrierInUse = false
	switch {
	case took <= slowWrite:
		b.limit = min(2*b.limit, batchSize)
	case float64(sent) < slowRate*took.Seconds():
		b.limit = smallFrame
	default:
		b.limit = slowBatchSize
	}
	s.queuedBytes -= b.payload
	b.payload = 0
	s.wakeRoomWaiterLocked()
	return true
}

func (s *Session) writeBatch(b *batch) error {
	var err error
	for i, w := range b.writes {
		if err == nil {
			s.carrier.SetWriteDeadline(time.Now().Add(writeTimeout))
			_, err = s.carrier.Write(w.data[:w.w])
		}
		s.putBuffer(w)
		b.writes[i] = nil
	}
	b.writes, b.bytes, b.lastIsShared = b.writes[:0], 0, false
	if f, ok := s.carrier.(interface{ Flush() error }); ok && err == nil {
		s.carrier.SetWriteDeadline(time.Now().Add(writeTimeout))
		err = f.Flush()
	}
	return err
}

func (s *Session) gatherControlLocked(b *batch) {
	for i, id := range s.refusals {
		if b.bytes >= b.limit {
			s.refusals = s.refusals[i:]
			s.mayRead.Signal()
			return
		}
		b.addHeader(header{kind: typeWindow, flags: flagACK | flagRST, id: id, length: CodeTooMany})
	}
	s.refusals = nil
	s.mayRead.Signal()
	for !s.controlQueue.empty() && b.bytes < b.limit {
		s.takeControlLocked(b, s.controlQueue.pop())
	}
}

// takeControlLocked adds the control frame of st to the batch: a reset, or a window
// update.
func (s *Session) takeControlLocked(b *batch, st *Stream) {
	h := header{kind: typeWindow, flags: st.takeAckFlagLocked(), id: st.id}
	if st.rstWanted {
		h.flags |= flagRST
		h.length = st.reset.Code
		b.addHeader(h)
		s.removeStreamLocked(st)
		return
	}
	h.length = uint32(st.window.credit)
	st.window.credit = 0
	if h.flags != 0 || h.length > 0 {
		b.addHeader(h)
	}
	s.gatherUnusedLocked(b, st)
}

// takeAckFlagLocked returns the ACK flag for the first frame of a stream that the
// peer opened, and zero for the others.
func (st *Stream) takeAckFlagLocked() uint16 {
	if st.ackWanted {
		st.ackWanted = false
		return flagACK
	}
	return 0
}

func (s *Session) gatherDataLocked(b *batch) {
	small, limit := 0, b.limit
	if s.bulk.hasOtherShares() { // one with a single stream has but few frames ready
		limit = slowBatchSize
	}
	for b.bytes < limit {
		var st *Stream
		if !s.interactive.empty() && (small < interactiveBurst || s.bulk.empty()) {
			st = s.interactive.pop()
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

// takeDataLocked adds one frame of st to the batch, with a small one that follows it, and
// the end after the last. If the small one took a turn, a Write of a bit more than a frame
// would cost two.
func (s *Session) takeDataLocked(b *batch, st *Stream) {
	h := header{id: st.id, flags: st.takeAckFlagLocked()}
	if st.synWanted {
		st.synWanted = false
		s.unsentSYNs--
		s.openReady.Signal()
		h.flags |= flagSYN
	}
	if st.nframes > 0 && b.limit <= sizes[classGather] && st.frames[0].w > b.limit {
		s.takePartLocked(b, st, h)
	} else if st.nframes > 0 {
		s.takeFrameLocked(b, st, h)
		h.flags = 0
		if st.nframes > 0 && st.frames[0].w <= smallFrame {
			s.takeFrameLocked(b, st, h)
		}
	} else if h.flags != 0 && !st.writeClosed {
		h.kind = typeWindow
		b.addHeader(h)
		return
	}
	if st.nframes > 0 {
		s.bulk.push(st)
		return
	}
	s.takeEndLocked(b, st, h.flags)
}

func (s *Session) takeFrameLocked(b *batch, st *Stream, h header) {
	f := st.popFrameLocked()
	s.countDataLocked(b, st, &h, f.w-headerSize)
	b.addFrame(f, h)
}

// takePartLocked adds the beginning of a frame that is larger than the batch.
func (s *Session) takePartLocked(b *batch, st *Stream, h header) {
	f, n := st.frames[0], b.limit-headerSize
	s.countDataLocked(b, st, &h, n)
	b.addHeader(h)
	copy(b.smallSpace(n), f.data[headerSize:])
	copy(f.data[headerSize:], f.data[headerSize+n:f.w])
	f.w -= n
}

func (s *Session) countDataLocked(b *batch, st *Stream, h *header, n int) {
	h.kind, h.length = typeData, uint32(n)
	b.payload += n
	s.bytesOut += uint64(n)
	st.share.sent += int64(n)
}

// takeEndLocked adds the end of st to the batch, if CloseWrite or Close was called.
// It is a window update with FIN. On a data frame some peers would handle FIN before the
// payload. FIN and RST together say that this side reads no more either: see the
// package comment.
func (s *Session) takeEndLocked(b *batch, st *Stream, flags uint16) {
	h := header{kind: typeWindow, flags: flags, id: st.id, length: CodeClosed}
	if st.writeClosed && !st.finSent {
		st.finSent = true
		st.writable.Broadcast()
		h.flags |= flagFIN
	}
	abandoned := st.closed && !st.finReceived
	if abandoned {
		h.flags |= flagRST
	}
	if h.flags != 0 {
		b.addHeader(h)
	}
	if abandoned {
		s.removeStreamLocked(st)
		return
	}
	s.removeIfEndedLocked(st)
}
