package tunnel

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

// aliveFor is how long a sign of life is good for.
const aliveFor = time.Second

// isSuspect reports whether the last probe failed and nothing came since.
func (s *sessionCore) isSuspect() bool {
	at := s.suspect.Load()
	return at != 0 && s.mux.Stats().LastRead.UnixNano() <= at
}

func (s *sessionCore) markSuspect() { s.suspect.Store(time.Now().UnixNano()) }

// isAlive reports whether something came just now, or else comes in answer to a
// probe: this one's or one that is on its way. The end of ctx is no answer.
func (s *sessionCore) isAlive(ctx context.Context) bool {
	if time.Since(s.mux.Stats().LastRead) < aliveFor {
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
	if first && !s.group.Go(func() { s.runProbe(p) }) {
		s.endProbe(p, true) // the session ends anyway
	}
	select {
	case <-p.done:
		return p.alive
	case <-ctx.Done():
		return false
	}
}

func (s *sessionCore) runProbe(p *probe) {
	ctx, cancel := context.WithTimeout(s.group.Context(), probeTimeout)
	defer cancel()
	began := time.Now()
	_, err := s.mux.Ping(ctx)
	alive := err == nil || s.mux.Stats().LastRead.After(began)
	if !alive {
		s.markSuspect()
	}
	s.endProbe(p, alive)
}

func (s *sessionCore) endProbe(p *probe, alive bool) {
	p.alive = alive
	s.mu.Lock()
	s.probing = nil
	s.mu.Unlock()
	close(p.done)
}

// exchange opens a stream with a message and reads the answer to it. While the
// session is silent it is probed; see awaitAnswer. The stream is the caller's
// unless there is an error.
func (s *sessionCore) exchange(ctx context.Context, m *wire.Message, elsewhere func(context.Context) bool) (*mux.Stream, *wire.Message, error) {
	stream, err := s.openPromptly(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	// Shorter than time.Now(): whoever waits for the answer is woken.
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

// openPromptly opens a stream with a message. It waits no longer than
// suspectAfter for room on a carrier that may be stuck.
func (s *sessionCore) openPromptly(ctx context.Context, m *wire.Message) (*mux.Stream, error) {
	short, cancel := context.WithTimeout(ctx, suspectAfter)
	defer cancel()
	stream, err := s.openLimited(short, m.Encode())
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		s.markSuspect()
		return nil, &mux.LostError{Err: errors.New("the carrier takes nothing")}
	}
	return stream, err
}

var errTooMany = errors.New("too many streams")

// openLimited keeps to the limit of streams: one at a time opens, since others
// may be counting too.
func (s *sessionCore) openLimited(ctx context.Context, first []byte) (*mux.Stream, error) {
	if s.opening == nil {
		return s.mux.Open(ctx, first)
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.openStreams() >= s.limit {
		return nil, errTooMany
	}
	return s.mux.Open(ctx, first)
}

// awaitAnswer reads the answer to a dial. A session that is silent is probed, again
// and again, and left when it does not answer and elsewhere says that another one
// may. What comes first counts: an answer is not taken back.
func (s *sessionCore) awaitAnswer(ctx context.Context, stream *mux.Stream, elsewhere func(context.Context) bool) (*wire.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	var decided atomic.Bool
	watched := make(chan struct{})
	watch := time.AfterFunc(suspectAfter, func() {
		defer close(watched)
		for ctx.Err() == nil {
			if !s.isAlive(ctx) && ctx.Err() == nil && elsewhere(ctx) {
				if !decided.Swap(true) {
					stream.Reset(uint32(CodeLost))
				}
				return
			}
			sleep(ctx, aliveFor)
		}
	})
	m, err := wire.Read(stream, wire.MaxRequest)
	late := decided.Swap(true)
	cancel()
	if !watch.Stop() {
		<-watched
	}
	if late && err == nil {
		return nil, &mux.ResetError{Code: uint32(CodeLost)} // it was left meanwhile
	}
	return m, err
}
