package mux

import (
	"context"
	"slices"
	"time"
)

// measureInterval is how often the round trip is measured while data flows.
const measureInterval = 200 * time.Millisecond

// shortestSpan is how long one minimum of the round trip is kept. Two minima are
// kept, this span's and the one before, so that an old one does not count for ever:
// the path may have become longer.
const shortestSpan = 2 * time.Second

// maxPongsQueued bounds the pings of the peer that wait for their answer. The
// oldest is dropped for one more.
const maxPongsQueued = 64

// pinger measures the round trip, and finds out whether the peer is alive. Any byte
// from the peer shows that; only a silent peer is pinged for it. The session's lock
// guards the fields.
type pinger struct {
	timer          *time.Timer      // nil: off
	pings          map[uint32]*ping // by id, not answered; nil: none
	pingID         uint32           // of the next ping
	probe          *ping            // the session's own ping that is not answered; nil: none
	probedAt       time.Duration    // instant of the last probe
	probedLastRead int64            // lastRead when a silent peer was last probed
	pingsToSend    []uint32         // ids
	pongsToSend    []uint32         // ids
	sentAt         time.Duration    // instant of the last batch
	rtt            time.Duration    // the latest round trip
	shortest       [2]time.Duration // round trips: the shortest of this span and of the last; zero: none
	shortestSince  time.Duration    // instant when this span began
}

type ping struct {
	sent  time.Duration      // instant; zero: not yet
	reply chan time.Duration // for Ping; nil: a probe
}

func (p *pinger) init(s *Session) {
	s.lastRead.Store(int64(s.now()))
	s.sendProbeLocked()
	first := s.probeAfter()
	if first < 0 {
		first = s.config.deadAfter()
	}
	if first >= 0 {
		// The first check is early, to end a writeLoop that the start of the session
		// has left idle.
		p.timer = time.AfterFunc(min(first, time.Second), s.checkAlive)
	}
}

// aliveReader reads from the carrier and records the instant in lastRead.
type aliveReader struct{ s *Session }

func (r aliveReader) Read(p []byte) (int, error) {
	n, err := r.s.carrier.Read(p)
	if n > 0 {
		r.s.lastRead.Store(int64(r.s.now()))
	}
	return n, err
}

// progressing is a carrier that knows more than what is read: see [Client].
type progressing interface {
	Progress() (taken, came time.Time)
}

// progress returns the instants when the network last took bytes that had to wait, and when it
// brought some that can't be read yet; zero: it is not known.
func (s *Session) progress() (taken, came time.Duration) {
	c, ok := s.carrier.(progressing)
	if !ok {
		return 0, 0
	}
	takenAt, cameAt := c.Progress()
	return max(takenAt.Sub(s.began), 0), max(cameAt.Sub(s.began), 0)
}

// checkAlive is run by the timer. It probes a silent peer, and ends the session if
// the peer stays silent.
func (s *Session) checkAlive() {
	probe, dead := s.probeAfter(), s.config.deadAfter()
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	last := s.lastRead.Load()
	now := s.now()
	taken, came := s.progress()
	idle := now - max(time.Duration(last), taken, came)
	if dead > 0 && idle >= dead {
		s.mu.Unlock()
		s.closeWithCause(newLostError(errSilent))
		return
	}
	defer s.mu.Unlock()
	s.sentOnlyPings = true // ends writeLoop if it has nothing to send: a start every few seconds costs nothing
	s.writerWake.Signal()
	if waits := now - max(s.sentAt, taken); s.carrierInUse && idle < min(waits, writeTimeout) && waits < maxWriteWait {
		// Something has come meanwhile: what stands between takes nothing now because it is full.
		s.carrier.SetWriteDeadline(time.Now().Add(writeTimeout - idle))
	}
	next := dead - idle
	if probe > 0 {
		tick, clock := probe/8, time.Now()
		wait := probe - idle
		if wait > tick {
			s.sendBeatLocked(now, idle)
		} else {
			if s.probedLastRead != last {
				s.probedLastRead = last
				s.probe = nil // a late answer to an older probe measures nothing
				s.sendProbeLocked()
			}
			wait = probe // the answer begins another silence
		}
		// The last tick of the clock in wait: a process with many idle sessions wakes once for all
		// that are due, since waking costs more than a ping.
		if wait = clock.Add(wait).Truncate(tick).Sub(clock); dead < 0 || wait < next {
			next = wait
		}
	}
	s.timer.Reset(next)
}

// beatID is that of an answer to no ping, which peers ignore.
const beatID = 1<<32 - 1

// sendBeatLocked lets a peer that goes on sending hear of this end, which has only received for a
// while. The peer's own pings wait behind what it sends: on a slow line for longer than DeadAfter.
func (s *Session) sendBeatLocked(now, idle time.Duration) {
	if half := s.probeAfter() / 2; idle < half && now-s.sentAt >= half {
		s.pongsToSend = append(s.pongsToSend, beatID)
		s.wakeWriterLocked()
	}
}

// sendProbeLocked sends a ping, unless the last probe is not answered yet.
func (s *Session) sendProbeLocked() {
	if s.probe == nil {
		s.probedAt = s.now()
		s.probe = s.queuePingLocked(nil)
	}
}

func (s *Session) queuePingLocked(reply chan time.Duration) *ping {
	id := s.pingID
	s.pingID++
	p := &ping{reply: reply}
	if s.pings == nil {
		s.pings = map[uint32]*ping{}
	}
	s.pings[id] = p
	s.pingsToSend = append(s.pingsToSend, id)
	s.wakeWriterLocked()
	return p
}

// Ping measures a round trip. The errors are the session's and ctx's.
func (s *Session) Ping(ctx context.Context) (time.Duration, error) {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return 0, s.err
	}
	id := s.pingID
	p := s.queuePingLocked(make(chan time.Duration, 1))
	s.mu.Unlock()
	select {
	case rtt := <-p.reply:
		return rtt, nil
	case <-s.done:
		return 0, s.Err()
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pings, id)
		s.pingsToSend = slices.DeleteFunc(s.pingsToSend, func(other uint32) bool { return other == id })
		return 0, ctx.Err()
	}
}

// handlePing handles a ping frame: the peer's question, or its answer.
func (s *Session) handlePing(h header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.flags&flagSYN != 0 {
		if len(s.pongsToSend) == maxPongsQueued { // the peer asks faster than it reads answers
			s.pongsToSend = slices.Delete(s.pongsToSend, 0, 1)
		}
		s.pongsToSend = append(s.pongsToSend, h.length)
		s.wakeWriterLocked()
		return
	}
	p := s.pings[h.length]
	if p == nil || p.sent == 0 {
		return
	}
	if delete(s.pings, h.length); len(s.pings) == 0 {
		s.pings = nil
	}
	s.recordRoundTrip(p.sent, s.now())
	if p == s.probe {
		s.probe = nil
	}
	if p.reply != nil {
		p.reply <- s.rtt // has room for it
	}
}

// recordRoundTrip records the round trip of a ping.
func (p *pinger) recordRoundTrip(sent, now time.Duration) {
	p.rtt = now - sent
	switch since := now - p.shortestSince; {
	case since >= 2*shortestSpan:
		p.shortest = [2]time.Duration{}
	case since >= shortestSpan:
		p.shortest[1], p.shortest[0] = p.shortest[0], 0
	}
	if p.shortest[0] == 0 {
		p.shortest[0], p.shortestSince = p.rtt, now
	}
	p.shortest[0] = min(p.shortest[0], p.rtt)
}

// roundTrip returns the round trip for which windows are sized: the shortest of the
// last spans, since a ping may have waited behind data. It is zero before the first
// measurement.
func (p *pinger) roundTrip() time.Duration {
	low := p.shortest[0]
	if p.shortest[1] > 0 {
		low = min(low, p.shortest[1])
	}
	if low == 0 {
		return 0
	}
	return max(low, minRoundTrip)
}

func (s *Session) gatherPingsLocked(b *batch) {
	for _, id := range s.pingsToSend {
		if p := s.pings[id]; p != nil {
			p.sent = s.now()
			b.addHeader(header{kind: typePing, flags: flagSYN, length: id})
		}
	}
	s.pingsToSend = s.pingsToSend[:0]
	for _, id := range s.pongsToSend {
		b.addHeader(header{kind: typePing, flags: flagACK, length: id})
	}
	s.pongsToSend = s.pongsToSend[:0]
}
