package session

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// A probe is one ping that any number of dials wait for.
type probe struct {
	done  chan struct{}
	alive bool // once done
}

// IsSuspect reports whether the last probe failed and nothing came since.
func (s *Session) IsSuspect() bool {
	at := s.suspect.Load()
	return at != 0 && s.Mux.Stats().LastRead.Sub(s.Since) <= time.Duration(at)
}

func (s *Session) markSuspect() { s.suspect.Store(int64(time.Since(s.Since))) }

// isAlive reports whether the other end has sent something within
// wire.ProbeInterval, or answers a probe. Callers share the probe that is under
// way. If ctx ends first, it returns false.
func (s *Session) isAlive(ctx context.Context) bool {
	if time.Since(s.Mux.Stats().LastRead) < wire.ProbeInterval {
		return true
	}
	s.mu.Lock()
	p := s.probing
	first := p == nil
	if first {
		p = &probe{done: make(chan struct{})}
		s.probing = p
	}
	s.mu.Unlock()
	if first && !s.Group.Go(func() { s.runProbe(p) }) {
		s.endProbe(p, true) // the group is closed: the session ends anyway
	}
	select {
	case <-p.done:
		return p.alive
	case <-ctx.Done():
		return false
	}
}

func (s *Session) runProbe(p *probe) {
	ctx, cancel := context.WithTimeout(s.Group.Context(), wire.ProbeTimeout)
	defer cancel()
	began := time.Now()
	_, err := s.Mux.Ping(ctx)
	alive := err == nil || s.Mux.Stats().LastRead.After(began)
	if !alive {
		s.markSuspect()
	}
	s.endProbe(p, alive)
}

func (s *Session) endProbe(p *probe, alive bool) {
	p.alive = alive
	s.mu.Lock()
	s.probing = nil
	s.mu.Unlock()
	close(p.done)
}

// Exchange opens a stream with a message, and early, the data that follows it, and reads
// the answer. The two have at most mux.MaxFirst bytes. A session that stays silent is
// probed, and given up if elsewhere returns true: see awaitAnswer. The caller closes the
// stream, unless there is an error.
func (s *Session) Exchange(ctx context.Context, m *wire.Message, early []byte, elsewhere func(context.Context) bool) (*mux.Stream, *wire.Message, error) {
	stream, err := s.Open(ctx, append(m.Encode(), early...))
	if err != nil {
		return nil, nil, err
	}
	// A deadline in the past ends the read; time.Unix is cheaper than time.Now.
	stop := context.AfterFunc(ctx, func() { stream.SetReadDeadline(time.Unix(1, 0)) })
	answer, err := s.awaitAnswer(ctx, stream, elsewhere)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		stream.Reset(0)
		return nil, nil, err
	}
	return stream, answer, nil
}

// Open opens a stream with its first bytes, a message at least. If the carrier takes
// nothing for wire.SuspectAfter, it returns a *mux.LostError and marks the session
// suspect.
func (s *Session) Open(ctx context.Context, first []byte) (*mux.Stream, error) {
	short, cancel := context.WithTimeout(ctx, wire.SuspectAfter)
	defer cancel()
	stream, err := s.openLimited(short, first)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		s.markSuspect()
		return nil, &mux.LostError{Err: errors.New("the other end takes nothing")}
	}
	return stream, err
}

// ErrTooMany is returned when Limit streams are open.
var ErrTooMany = errors.New("too many streams")

// openLimited opens a stream unless Limit streams are open. One caller at a time
// counts and opens, or two could open the last one.
func (s *Session) openLimited(ctx context.Context, first []byte) (*mux.Stream, error) {
	if s.opening == nil {
		return s.Mux.Open(ctx, first)
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.OpenStreams() >= s.Limit {
		return nil, ErrTooMany
	}
	return s.Mux.Open(ctx, first)
}

// awaitAnswer reads the answer to a request. If none has come within
// wire.SuspectAfter, it probes the session, and again every wire.ProbeInterval. When
// a probe fails, it calls elsewhere, which reports whether another session may
// answer; if so, it gives up this one. An answer that comes meanwhile counts: the
// first of the two decides, and the other is dropped.
func (s *Session) awaitAnswer(ctx context.Context, stream *mux.Stream, elsewhere func(context.Context) bool) (*wire.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	var decided atomic.Bool
	watched := make(chan struct{})
	watch := time.AfterFunc(wire.SuspectAfter, func() {
		defer close(watched)
		for ctx.Err() == nil {
			if !s.isAlive(ctx) && ctx.Err() == nil && elsewhere(ctx) {
				if !decided.Swap(true) {
					stream.Reset(codeLost)
				}
				return
			}
			select {
			case <-time.After(wire.ProbeInterval):
			case <-ctx.Done():
			}
		}
	})
	m, err := wire.Read(stream, wire.MaxRequest)
	late := decided.Swap(true)
	cancel()
	if !watch.Stop() {
		<-watched
	}
	if late && err == nil {
		return nil, &mux.ResetError{Code: codeLost} // given up, just before the answer came
	}
	return m, err
}
