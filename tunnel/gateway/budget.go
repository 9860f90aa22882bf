package gateway

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/budget"
)

// errBudget is why a stream or a connection was reset for a [budget.Budget].
var errBudget = fmt.Errorf("too much waits that nobody reads: %w", syscall.ECONNRESET)

// AppendHoldings makes the connection a member of the Budget: what the client sent and its
// targets don't take, and frames that it does not read. What a stranger may cost is bounded
// otherwise.
func (h *http2Conn) AppendHoldings(all []budget.Holding) []budget.Holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.admitted {
		return all
	}
	for _, s := range h.streams {
		if s.received.held > 0 {
			all = append(all, budget.Holding{Item: s, By: h.holder, Bytes: s.received.held, Waits: time.Since(s.takenAt)})
		}
	}
	if blocked := h.blockedFor(); blocked >= budget.BlockedAfter {
		all = append(all, budget.Holding{Item: blockedConn{h}, By: h.holder, Bytes: h.queueHeld, Waits: blocked})
	}
	return all
}

// countQueueLocked counts the memory of the queue.
func (h *http2Conn) countQueueLocked() {
	n := h.queue.Cap() + h.sending
	budget.Add(h.g.budget(), n-h.queueHeld)
	h.queueHeld = n
}

// blockedFor returns how long the write that is under way has taken.
func (h *http2Conn) blockedFor() time.Duration {
	if began := h.writing.Load(); began != 0 {
		return time.Duration(h.now() - began)
	}
	return 0
}

// now returns the time since the connection began, in ns. It is never zero.
func (h *http2Conn) now() int64 { return int64(time.Since(h.request.began)) + 1 }

// blockedConn is the frames that a client does not read.
type blockedConn struct{ *http2Conn }

// Reclaim resets the connection if the client has still read nothing.
func (h blockedConn) Reclaim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && h.blockedFor() >= budget.BlockedAfter {
		h.wg.Go(func() { abort.Reset(h.raw, 0) }) // it would not read why
	}
}

// Reclaim resets the stream. A write of it ends, too, as soon as the client reads or
// has taken nothing for BlockedAfter.
func (s *http2Stream) Reclaim() {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.err == nil {
		s.failLocked(errBudget)
		h.queueResetLocked(s.id, http2.ErrCodeEnhanceYourCalm)
	}
	if blocked := h.blockedFor(); blocked > 0 {
		time.AfterFunc(budget.BlockedAfter-blocked, blockedConn{h}.Reclaim)
	}
}
