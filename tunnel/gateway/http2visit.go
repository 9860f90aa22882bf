package gateway

import (
	"context"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/admission"
)

// serve is the handler of a stream, given its header or what was wrong with it.
func (s *http2Stream) serve(ctx context.Context, request *head, err error) {
	g := s.h.g
	v := g.enter(DoorConnect, s.h.raw.RemoteAddr())
	defer v.leave()
	if err != nil {
		s.refuse(answerTo(v.fail(PhaseHandshake, err)))
		return
	}
	if err := s.admit(ctx, v, request); err != nil {
		s.refuse(answerTo(err))
		return
	}
	target, err := v.dial(ctx)
	if err != nil {
		s.refuse(answerTo(err))
		return
	}
	if err := s.accept(); err != nil {
		abort.Reset(target, 0)
		v.fail(PhaseRelay, err)
		return
	}
	v.relay(ctx, nil, s, target)
}

func (s *http2Stream) admit(ctx context.Context, v *visit, request *head) error {
	ctx, cancel := context.WithTimeout(ctx, s.h.g.handshakeTimeout())
	defer cancel()
	s.h.beginAsking()
	defer s.h.endAsking(admission.Greeting)
	if err := v.admit(ctx, s.h.credentials(request)); err != nil {
		return err
	}
	if err := s.h.countConnection(); err != nil {
		return v.fail(PhaseLimit, err)
	}
	return nil
}

// countConnection lets the connection in with the first stream that is.
func (h *http2Server) countConnection() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.v.counted {
		return nil
	}
	if err := h.v.count(""); err != nil {
		return err
	}
	h.letIn()
	h.widenLocked()
	return nil
}

// accept answers 200, and lets the client send.
func (s *http2Stream) accept() error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.admitted = true
	s.headersLocked(false, func(yield func(name, value string) bool) { yield(":status", "200") })
	s.openLocked()
	return nil
}

// widenLocked is for a connection on which a client was let in: what it may send, and
// how many streams it may open, is bounded no more as a stranger's is.
func (h *http2Server) widenLocked() {
	if h.admitted {
		return
	}
	h.admitted = true
	h.room.Signal()
	h.consumedLocked(h.kept + connWindow - defaultWindow)
	h.kept = 0
}

// refuse answers and ends the stream. A client that leaves no room for the
// body gets none.
func (s *http2Stream) refuse(a *answer) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.err != nil {
		return
	}
	body := []byte(a.body())
	n := int64(len(body))
	room := s.sendWindow >= n && h.sendWindow >= n
	s.headersLocked(!room, func(yield func(name, value string) bool) {
		if yield(":status", strconv.Itoa(a.status)) {
			a.fields(func(name, value string) bool { return yield(strings.ToLower(name), value) })
		}
	})
	if room {
		h.sendWindow -= n
		h.queued.WriteData(s.id, true, body)
	}
	if !s.ended {
		h.rstLocked(s.id, http2.ErrCodeNo)
	}
	h.refused++
	h.poke()
	s.breakLocked(errRefused)
}

func (s *http2Stream) headersLocked(end bool, fields func(func(name, value string) bool)) {
	h := s.h
	h.encoded.Reset()
	for name, value := range fields {
		h.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	h.queued.WriteHeaders(http2.HeadersFrameParam{
		StreamID: s.id, BlockFragment: h.encoded.Bytes(), EndStream: end, EndHeaders: true,
	})
	h.poke()
}
