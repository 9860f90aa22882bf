package mux

import (
	"context"
	"math"
	"sync"
	"time"
)

// maxUnsent is how many streams may wait for their SYN to be sent.
const maxUnsent = 256

// ackDelay is how long the answer to an opening may wait for a frame with
// which it can travel. A frame of its own costs as much as the first data.
const ackDelay = 20 * time.Millisecond

// Open opens a stream and sends first, at most [MaxFirst] bytes, along. It
// doesn't wait for the peer, only, as long as ctx allows, for room among what
// is to be sent. A peer that refuses the stream resets it. The errors are
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
	st := newStream(s, uint32(s.nextID))
	s.nextID += 2
	st.synWanted = true
	s.addLocked(st)
	s.unsent++
	if len(first) > 0 {
		b := s.frame(classFor(headerSize + len(first)))
		b.append(first)
		st.window.send -= len(first)
		s.queued += len(first)
		st.enqueueLocked(b)
	}
	s.readyLocked(st, len(first) <= smallFrame)
	return st, nil
}

// waitOpenLocked waits until a stream can be opened with a first of size n.
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
		case s.unsent < maxUnsent && (n <= smallFrame || s.queued+n <= maxQueued):
			return nil
		}
		if stop == nil {
			stop = s.broadcastAfter(ctx, &s.opens)
			defer stop()
			defer s.opens.Signal() // the next one may find what we leave
		}
		s.opens.Wait()
	}
}

// broadcastAfter wakes those who wait for c when ctx ends, unless stop is called.
func (s *Session) broadcastAfter(ctx context.Context, c *sync.Cond) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.Broadcast()
	})
}

func (s *Session) addLocked(st *Stream) {
	s.streams[st.id] = st
	s.opened++
}

// Accept returns the next stream that the peer opened. The errors are the
// session's and ctx's.
func (s *Session) Accept(ctx context.Context) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stop func() bool
	for {
		if st := s.nextLocked(); st != nil {
			return st, nil
		}
		if s.err != nil {
			return nil, s.err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if stop == nil && ctx.Done() != nil {
			stop = s.broadcastAfter(ctx, &s.accepts)
			defer stop()
		}
		s.accepts.Wait()
	}
}

// nextLocked returns the next stream to hand over; nil if there is none, or if
// too many were and nobody has closed them.
func (s *Session) nextLocked() *Stream {
	if s.accepted >= s.config.maxStreams() {
		return nil
	}
	st := s.accept.pop()
	if st != nil {
		st.accepted = true
		s.accepted++
		s.acknowledgeLocked(st)
	}
	return st
}

// letGoLocked is called when st is closed or reset here.
func (s *Session) letGoLocked(st *Stream) {
	if !st.accepted {
		return
	}
	st.accepted = false
	s.accepted--
	s.accepts.Signal()
	if s.serve != nil && !s.serving && !s.accept.empty() && s.err == nil {
		s.loops.Go(s.handOver)
	}
}

// acknowledgeLocked has the stream acknowledged, with what is sent first: peers
// that are not ours count those that are not.
func (s *Session) acknowledgeLocked(st *Stream) {
	if st.gone {
		s.incoming--
		return
	}
	switch {
	case s.ackTimer == nil:
		s.ackTimer = time.AfterFunc(ackDelay, s.acknowledge)
	case s.acks.empty():
		s.ackTimer.Reset(ackDelay)
	}
	s.acks.push(st)
}

// acknowledge is run by the timer. It acknowledges the streams on which
// nothing was sent yet.
func (s *Session) acknowledge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := s.acks.pop(); st != nil; st = s.acks.pop() {
		if st.ackWanted {
			s.controlLocked(st)
		}
	}
}

// incomingLocked is a SYN of the peer. It returns nil for a stream that was
// refused.
func (s *Session) incomingLocked(id uint32) (*Stream, error) {
	if fromClient := id%2 == 1; id == 0 || fromClient == s.client {
		return nil, protocolError("the peer opened stream %d", id)
	}
	if s.streams[id] != nil {
		return nil, protocolError("the peer opened stream %d twice", id)
	}
	if s.incoming >= s.config.maxStreams() {
		s.refuseLocked(id)
		return nil, nil
	}
	st := newStream(s, id)
	st.peers = true
	st.ackWanted = true
	s.addLocked(st)
	s.incoming++
	s.accept.push(st)
	s.accepts.Signal()
	s.came = true
	return st, nil
}

// peerGoAway is a GoAway frame. We send none: a server says by its own messages
// that it leaves.
func (s *Session) peerGoAway(code uint32) error {
	if code != goAwayNormal {
		return protocolError("the peer ends the session with code %d", code)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peerGone = true
	s.opens.Broadcast()
	return nil
}
