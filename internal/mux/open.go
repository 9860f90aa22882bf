package mux

import (
	"context"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// maxUnaccepted is how many streams of the peer may wait: see acceptSYNLocked.
const maxUnaccepted = 64

// maxEnding is how many streams of the peer may have ended here whose end was not sent yet. Each
// takes some 650 bytes, beside its frames, which count for the Budget.
const maxEnding = 512

// maxUnsent is how many streams may be open whose SYN was not sent yet.
const maxUnsent = 256

// ackDelay is how long the ACK of a stream may wait for another frame that can
// carry it. A frame only for the ACK costs as much as one with the first data.
const ackDelay = 20 * time.Millisecond

// Open opens a stream and sends first, at most [MaxFirst] bytes, with the opening.
// It doesn't wait for the peer. It waits, until ctx ends, for room in the queue of
// what is to be sent. A peer that refuses the stream resets it. The errors are
// ErrGoAway, ErrSettled, ErrExhausted, ErrTooLong, the session's and ctx's.
func (s *Session) Open(ctx context.Context, first []byte) (*Stream, error) {
	if len(first) > MaxFirst {
		return nil, ErrTooLong
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.waitOpenLocked(ctx, len(first)); err != nil {
		return nil, err
	}
	st := newStreamLocked(s, uint32(s.nextID))
	s.nextID += 2
	st.synWanted = true
	s.unsentSYNs++
	st.unacked = true
	s.unacked++
	if len(first) > 0 {
		b := s.getFrame(classFor(headerSize + len(first)))
		b.append(first)
		st.window.send -= len(first)
		s.queuedBytes += len(first)
		st.pushFrameLocked(b)
	}
	s.queueDataLocked(st, len(first) <= smallFrame)
	return st, nil
}

// waitOpenLocked waits until a stream can be opened with n first bytes.
func (s *Session) waitOpenLocked(ctx context.Context, n int) error {
	var stop func() bool
	for {
		switch {
		case s.err != nil:
			return s.err
		case ctx.Err() != nil:
			return ctx.Err()
		case s.peerGone:
			return ErrGoAway
		case s.settled:
			return ErrSettled
		case s.nextID > math.MaxUint32:
			return ErrExhausted
		case s.backlog > 0 && s.unacked >= s.backlog:
		case s.unsentSYNs < maxUnsent && (n <= smallFrame || s.queuedBytes+n <= maxQueued):
			return nil
		}
		if stop == nil {
			stop = s.broadcastAfter(ctx, &s.openReady)
			defer stop()
			defer s.openReady.Signal() // there may be room for the next Open too
		}
		s.openReady.Wait()
	}
}

// LimitBacklog bounds the streams that were opened here and that the peer has not acknowledged:
// one above its backlog is reset by hashicorp/yamux, whose default is 256. Open waits then.
func (s *Session) LimitBacklog(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backlog = n
}

// noteAckLocked is called when the peer has acknowledged the stream, or it has ended.
func (s *Session) noteAckLocked(st *Stream) {
	if st.unacked {
		st.unacked = false
		s.unacked--
		s.openReady.Signal()
	}
}

// broadcastAfter calls c.Broadcast when ctx ends, unless stop is called before.
func (s *Session) broadcastAfter(ctx context.Context, c *sync.Cond) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.Broadcast()
	})
}

// Accept returns the next stream that the peer opened. The errors are the
// session's and ctx's.
func (s *Session) Accept(ctx context.Context) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stop func() bool
	for {
		if st := s.nextAcceptedLocked(); st != nil {
			return st, nil
		}
		if s.err != nil {
			return nil, s.err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if stop == nil && ctx.Done() != nil {
			stop = s.broadcastAfter(ctx, &s.acceptReady)
			defer stop()
		}
		s.acceptReady.Wait()
	}
}

// nextAcceptedLocked returns the next stream to hand over to Accept or Serve. It
// returns nil if no stream waits, or if MaxStreams were handed over and not closed
// or reset here: see the fields of Session.
func (s *Session) nextAcceptedLocked() *Stream {
	if s.handedOver >= s.config.maxStreams() {
		return nil
	}
	st := s.acceptQueue.pop()
	if st != nil {
		st.handedOver = true
		s.handedOver++
		s.unaccepted--
		s.mayRead.Signal()
		s.scheduleAckLocked(st)
	}
	return st
}

// releaseHandedOverLocked is called when st is closed or reset here. It lets the
// next stream be handed over.
func (s *Session) releaseHandedOverLocked(st *Stream) {
	if !st.handedOver {
		return
	}
	st.handedOver = false
	s.handedOver--
	s.acceptReady.Signal()
	if s.serveFunc != nil && !s.serving && !s.acceptQueue.empty() && s.err == nil {
		s.loops.Go(s.handOver)
	}
}

// scheduleAckLocked has st acknowledged by its first frame, or after ackDelay by a
// frame of its own. hashicorp/yamux opens at most 256 streams that are not
// acknowledged.
func (s *Session) scheduleAckLocked(st *Stream) {
	if st.removed {
		s.incomingStreams--
		return
	}
	switch {
	case s.ackTimer == nil:
		s.ackTimer = time.AfterFunc(ackDelay, s.sendAcks)
	case s.ackQueue.empty():
		s.ackTimer.Reset(ackDelay)
	}
	s.ackQueue.push(st)
}

// sendAcks is run by ackTimer. It acknowledges the streams on which nothing was
// sent yet.
func (s *Session) sendAcks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := s.ackQueue.pop(); st != nil; st = s.ackQueue.pop() {
		if st.ackWanted {
			s.queueControlLocked(st)
		}
	}
}

// acceptSYNLocked handles a frame with SYN, by which the peer opens a stream. It
// returns nil if it refuses the stream. As in yamux's spec the client's ids are
// odd and the server's even. While nobody takes the streams, or serveFunc is busy, few of
// them may wait, and nothing more is read: each takes more than a kilobyte. The same holds
// while maxEnding have ended here and the peer does not take their ends.
func (s *Session) acceptSYNLocked(id uint32) (*Stream, error) {
	if fromClient := id%2 == 1; id == 0 || fromClient == s.client {
		return nil, protocolError("the peer opened stream %d", id)
	}
	if s.streams[id] != nil {
		return nil, protocolError("the peer opened stream %d twice", id)
	}
	if s.incomingStreams >= s.config.maxStreams() {
		s.queueRefusalLocked(id)
		return nil, nil
	}
	for (s.ending >= maxEnding || s.unaccepted >= maxUnaccepted && (s.serveFunc == nil || s.serving)) && s.err == nil {
		s.mayRead.Wait()
	}
	if s.err != nil {
		return nil, s.err
	}
	s.unaccepted++
	st := newStreamLocked(s, id)
	st.openedByPeer = true
	st.ackWanted = true
	s.incomingStreams++
	s.acceptQueue.push(st)
	s.acceptReady.Signal()
	s.streamOpened = true
	return st, nil
}

// handleGoAway handles a GoAway frame. This package sends none: package tunnel has
// messages of its own for it.
func (s *Session) handleGoAway(code uint32) error {
	if code != goAwayNormal {
		return protocolError("the peer ends the session with code %d", code)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peerGone = true
	s.openReady.Broadcast()
	return nil
}

// Serve replaces Accept: f is called for each stream that the peer opened, in order
// and one at a time. Streams that wait for Accept come first. The session's
// reader may be the caller: while f waits, nothing is read from the peer. So f must wait
// for nothing that needs the peer, nor call the session's Close. f is not called after Close
// has returned. Call Serve at most once.
func (s *Session) Serve(f func(*Stream)) {
	s.mu.Lock()
	s.serveFunc = f
	s.mu.Unlock()
	s.handOver()
}

// handOver calls serveFunc for the streams that wait. If another goroutine is
// doing that, it leaves them to it.
func (s *Session) handOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serveFunc == nil || s.serving {
		return
	}
	s.serving = true
	for st := s.nextAcceptedLocked(); st != nil; st = s.nextAcceptedLocked() {
		s.mu.Unlock()
		s.serveFunc(st)
		s.mu.Lock()
	}
	s.serving = false
	s.mayRead.Signal()
}

// Refuse answers a [Client] that gets no session. It waits for the first stream
// that the client opens, and writes answer and the stream's end. It keeps nothing
// of what the client sends and takes no second stream. The caller discards what
// still comes, and closes the carrier. The errors are the carrier's, or a
// [*LostError] if the client doesn't speak yamux.
func Refuse(carrier net.Conn, answer []byte) error {
	var b [headerSize]byte
	for {
		if _, err := io.ReadFull(carrier, b[:]); err != nil {
			return err
		}
		h, err := parseHeader(b[:])
		switch {
		case err != nil:
			return err
		case h.kind == typePing:
			continue // the answer will show that this side is alive
		case h.kind == typeGoAway, h.flags&flagSYN == 0, h.id%2 == 0:
			return protocolError("the client opens no stream")
		}
		return writeRefusal(carrier, h.id, answer)
	}
}

func writeRefusal(carrier net.Conn, id uint32, answer []byte) error {
	b := make([]byte, 2*headerSize+len(answer))
	header{kind: typeData, flags: flagACK, id: id, length: uint32(len(answer))}.put(b)
	copy(b[headerSize:], answer)
	header{kind: typeWindow, flags: flagFIN, id: id}.put(b[headerSize+len(answer):])
	if _, err := carrier.Write(b); err != nil {
		return err
	}
	if f, ok := carrier.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}
