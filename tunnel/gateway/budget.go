package gateway

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/budget"
)

// errBudget is why a stream or a connection was reset for a [budget.Budget].
var errBudget = fmt.Errorf("too much waits that nobody reads: %w", syscall.ECONNRESET)

// earlyBytes is what a client has sent by another way than HTTP/2, and its target has not taken yet: a
// member of the Budget.
type earlyBytes struct {
	g       *Gateway
	holder  budget.Holder
	since   time.Time
	reclaim func()
	held    atomic.Int64
}

func (g *Gateway) holdEarly(client Identity, reclaim func()) *earlyBytes {
	e := &earlyBytes{g: g, holder: budget.Holder{In: client.Cluster, By: client}, since: time.Now(), reclaim: reclaim}
	if client.Name == "" {
		e.holder.By = e
	}
	budget.Enter(g.budget(), e)
	return e
}

func (e *earlyBytes) add(n int) {
	budget.Keep(e.g.budget())
	e.held.Add(int64(n))
	budget.Add(e.g.budget(), n)
}

// leave ends it: the bytes are written, or thrown away. A second call does nothing.
func (e *earlyBytes) leave() {
	budget.Leave(e.g.budget(), e)
	budget.Add(e.g.budget(), -int(e.held.Swap(0)))
}

// AppendHoldings implements [budget.Member].
func (e *earlyBytes) AppendHoldings(all []budget.Holding) []budget.Holding {
	return append(all, budget.Holding{Holder: e.holder, Bytes: int(e.held.Load()), Waits: time.Since(e.since), Reclaim: e.reclaim})
}

// AppendHoldings makes the connection a member of the Budget: what the client sent and its
// targets don't take, and frames that it does not read.
func (h *http2Conn) AppendHoldings(all []budget.Holding) []budget.Holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	client, _ := h.holder.(Identity)
	holder := budget.Holder{In: client.Cluster, By: h.holder}
	for _, s := range h.streams {
		all = append(all, budget.Holding{Holder: holder, Bytes: s.received.held, Waits: time.Since(s.takenAt), Reclaim: s.reclaim})
	}
	return append(all, budget.Holding{Holder: holder, Bytes: h.queueHeld, Waits: time.Since(h.flushedAt), Reclaim: h.resetBlocked})
}

// resetBlocked resets the connection if the client has read none of what waits for a time.
func (h *http2Conn) resetBlocked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && h.queue.Len() > 0 && time.Since(h.flushedAt) >= budget.BlockedAfter {
		h.wg.Go(func() { abort.Reset(h.raw, 0) }) // it would not read why
	}
}

// reclaim resets the stream. A write of it ends, too, as soon as the client reads or
// has taken nothing for BlockedAfter.
func (s *http2Stream) reclaim() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.err == nil {
		s.failLocked(errBudget)
		s.h.queueResetLocked(s.id, http2.ErrCodeEnhanceYourCalm)
		time.AfterFunc(budget.BlockedAfter, s.h.resetBlocked)
	}
}
