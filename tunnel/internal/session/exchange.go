package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
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
func (s *Session) Exchange(ctx context.Context, by Caller, m *wire.Message, early []byte, elsewhere func(context.Context) bool) (*mux.Stream, *wire.Message, error) {
	stream, err := s.open(ctx, by, append(m.Encode(), early...))
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

// Caller is for whom a stream is opened. The zero value is this program.
type Caller struct {
	Share  uint64        // see mux.Stream.SetShare
	Holder budget.Holder // who is to lose something if much waits
}

// Open opens a stream of this program with its first bytes, a message at least. If the carrier takes
// nothing for wire.SuspectAfter, it returns a *mux.LostError and marks the session
// suspect.
func (s *Session) Open(ctx context.Context, first []byte) (*mux.Stream, error) {
	return s.open(ctx, Caller{}, first)
}

func (s *Session) open(ctx context.Context, by Caller, first []byte) (*mux.Stream, error) {
	short, cancel := context.WithTimeout(ctx, wire.SuspectAfter)
	defer cancel()
	stream, err := s.openLimited(short, by, first)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		s.markSuspect()
		return nil, &mux.LostError{Err: errors.New("the other end takes nothing")}
	}
	return stream, err
}

// ErrTooMany is returned when Limit streams are open, or too many of the caller.
var ErrTooMany = errors.New("too many streams")

// openLimited opens a stream unless Limit streams are open, or a caller has three times as many as it would
// leave to others. One goroutine at a time counts and opens, or two could open the last one.
func (s *Session) openLimited(ctx context.Context, by Caller, first []byte) (*mux.Stream, error) {
	if s.opening != nil {
		select {
		case s.opening <- struct{}{}:
			defer func() { <-s.opening }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		open := s.OpenStreams()
		free := s.Limit - open
		if free <= 0 || by.Share != 0 && open >= 3*free && s.Mux.StreamsOf(by.Share, by.Holder) >= 3*free {
			return nil, ErrTooMany
		}
	}
	stream, err := s.Mux.Open(ctx, first)
	if err == nil {
		stream.SetShare(by.Share, by.Holder)
	}
	return stream, err
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

// maxRefused is how many bytes a client may send that gets no session.
const maxRefused = wire.MaxHello + 2<<10

// SayHello opens the control stream with HELLO and reads the answer, of up to
// limit bytes. Then it calls check, which returns an error unless the answer begins
// a session, and may write to the control stream. The context bounds all of it.
func SayHello(ctx context.Context, m *mux.Session, hello *wire.Message, limit int, check func(control *mux.Stream, answer *wire.Message) error) (*mux.Stream, *wire.Message, error) {
	control, err := m.Open(ctx, hello.Encode())
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetDeadline(time.Unix(1, 0)) })
	answer, err := wire.Read(control, limit)
	if err == nil {
		err = check(control, answer)
	}
	if !stop() {
		err = fmt.Errorf("waiting for the answer to HELLO: %w", ended.Error(ctx, err))
	}
	return control, answer, err
}

// ReadHello accepts the control stream and reads HELLO.
func ReadHello(ctx context.Context, m *mux.Session) (*mux.Stream, *wire.Message, error) {
	control, err := m.Accept(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetReadDeadline(time.Unix(1, 0)) })
	hello, err := wire.Read(control, wire.MaxHello)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && hello.Kind != wire.MsgHello {
		err = errors.New("the first message is not HELLO")
	}
	return control, hello, err
}

// RefuseStranger answers the HELLO of a client whose certificate is not accepted. No
// mux.Session is made for it, since that would buffer what the client sends. It waits
// until the client has read the answer and hung up, LingerTimeout at most.
func RefuseStranger(ctx context.Context, c *carrier.Conn, why *wire.Message) {
	stop := context.AfterFunc(ctx, func() { socket.Innermost(c).Close() })
	defer stop()
	c.Limit(maxRefused)
	if mux.Refuse(c, why.Encode()) != nil {
		return
	}
	defer socket.CloseAfter(c, LingerTimeout)()
	var b [512]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return
		}
	}
}

// AnswerLast writes the last message, and waits until the other side has read
// it and left.
func AnswerLast(ctx context.Context, stream *mux.Stream, m *wire.Message) {
	ctx, cancel := context.WithTimeout(ctx, LingerTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if wire.Write(stream, m) == nil && stream.CloseWrite() == nil {
		io.Copy(io.Discard, stream)
	}
}
