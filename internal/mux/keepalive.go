package mux

import (
	"context"
	"slices"
	"time"
)

// measureEvery is how often the round trip is measured while data flows.
const measureEvery = 200 * time.Millisecond

// lowSpan is for how long the shortest round trip counts, and then once more: a
// line may become a longer one.
const lowSpan = 2 * time.Second

// maxPongs is how many pings of the peer are kept to be answered.
const maxPongs = 64

// pinger measures the round trip, and finds out whether the peer lives.
type pinger struct {
	timer    *time.Timer      // nil: off
	pings    map[uint32]*ping // not answered; nil: none
	pingID   uint32
	probe    *ping    // ours that was not answered
	probed   int64    // lastRead when it was sent
	toSend   []uint32 // ids of pings to send
	pongs    []uint32 // ids to answer
	rtt      time.Duration
	lows     [2]time.Duration // the shortest of this lowSpan and of the one before; zero: unknown
	lowSince time.Duration    // instant when this one began
	probedAt time.Duration    // instant of the last probe
}

type ping struct {
	sent  time.Duration // instant
	reply chan time.Duration
}

func (p *pinger) init(s *Session) {
	s.lastRead.Store(int64(s.now()))
	s.probeLocked()
	first := s.config.probeAfter()
	if first < 0 {
		first = s.config.deadAfter()
	}
	if first >= 0 {
		// The first time is soon: much is sent in the beginning, and it is over.
		p.timer = time.AfterFunc(min(first, time.Second), s.checkAlive)
	}
}

func (p *pinger) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// aliveReader notes when something came.
type aliveReader struct{ s *Session }

func (r aliveReader) Read(p []byte) (int, error) {
	n, err := r.s.carrier.Read(p)
	if n > 0 {
		r.s.lastRead.Store(int64(r.s.now()))
	}
	return n, err
}

// checkAlive is run by the timer.
func (s *Session) checkAlive() {
	probe, dead := s.config.probeAfter(), s.config.deadAfter()
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	last := s.lastRead.Load()
	idle := s.now() - time.Duration(last)
	if dead > 0 && idle >= dead {
		s.mu.Unlock()
		s.fail(lost(errSilent))
		return
	}
	defer s.mu.Unlock()
	s.restLocked()
	next := dead - idle
	if probe > 0 && idle < probe {
		next = probe - idle
	} else if probe > 0 {
		if s.probed != last {
			s.probed = last
			s.probe = nil // a late answer to an older one is no measurement
			s.probeLocked()
		}
		// An answer begins the next silence, which must not get longer.
		if dead < 0 || next > probe {
			next = probe
		}
	}
	s.timer.Reset(next)
}

// measureLocked is called while data flows.
func (s *Session) measureLocked(now time.Duration) {
	if now-s.probedAt >= measureEvery {
		s.probeLocked()
	}
}

// probeLocked sends a ping, unless one was not answered.
func (s *Session) probeLocked() {
	if s.probe == nil {
		s.probedAt = s.now()
		s.probe = s.pingLocked(nil)
	}
}

func (s *Session) pingLocked(reply chan time.Duration) *ping {
	id := s.pingID
	s.pingID++
	p := &ping{reply: reply}
	if s.pings == nil {
		s.pings = map[uint32]*ping{}
	}
	s.pings[id] = p
	s.toSend = append(s.toSend, id)
	s.wakeLocked()
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
	p := s.pingLocked(make(chan time.Duration, 1))
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
		s.toSend = slices.DeleteFunc(s.toSend, func(other uint32) bool { return other == id })
		return 0, ctx.Err()
	}
}

// pinged is a ping frame.
func (s *Session) pinged(h header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.flags&flagSYN != 0 {
		if len(s.pongs) == maxPongs { // the peer asks faster than it reads
			copy(s.pongs, s.pongs[1:])
			s.pongs = s.pongs[:maxPongs-1]
		}
		s.pongs = append(s.pongs, h.length)
		s.wakeLocked()
		return
	}
	p := s.pings[h.length]
	if p == nil || p.sent == 0 {
		return
	}
	if delete(s.pings, h.length); len(s.pings) == 0 {
		s.pings = nil
	}
	s.answered(p.sent, s.now())
	if p == s.probe {
		s.probe = nil
	}
	if p.reply != nil {
		p.reply <- s.rtt // has room for it
	}
}

// answered notes the round trip of a ping.
func (p *pinger) answered(sent, now time.Duration) {
	p.rtt = now - sent
	switch since := now - p.lowSince; {
	case since >= 2*lowSpan:
		p.lows = [2]time.Duration{}
	case since >= lowSpan:
		p.lows[1], p.lows[0] = p.lows[0], 0
	}
	if p.lows[0] == 0 {
		p.lows[0], p.lowSince = p.rtt, now
	}
	p.lows[0] = min(p.lows[0], p.rtt)
}

// roundTrip is what windows are made for: the shortest lately, because a ping
// may have waited behind data. It is zero as long as none was measured.
func (p *pinger) roundTrip() time.Duration {
	low := p.lows[0]
	if p.lows[1] > 0 {
		low = min(low, p.lows[1])
	}
	if low == 0 {
		return 0
	}
	return max(low, minRoundTrip)
}

func (s *Session) gatherPingsLocked(b *batch) {
	for _, id := range s.toSend {
		if p := s.pings[id]; p != nil {
			p.sent = s.now()
			b.header(header{kind: typePing, flags: flagSYN, length: id})
		}
	}
	s.toSend = s.toSend[:0]
	for _, id := range s.pongs {
		b.header(header{kind: typePing, flags: flagACK, length: id})
	}
	s.pongs = s.pongs[:0]
}
