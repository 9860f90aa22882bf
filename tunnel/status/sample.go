package status

import (
	"context"
	"time"
)

const (
	// fresh is how long an answer of Fleet is good.
	fresh = 2 * time.Second
	// refresh is how often a page that somebody looks at is brought up to date.
	refresh = 5 * time.Second
	// patience bounds a call of Fleet.
	patience = 10 * time.Second
)

// Run asks Fleet once a Step until ctx ends, and returns nil. Without it the
// Handler asks only while somebody looks, and a page that is opened anew shows
// no past.
func (h *Handler) Run(ctx context.Context) error {
	tick := time.NewTicker(h.step())
	defer tick.Stop()
	for {
		if h.Fleet != nil && ctx.Err() == nil {
			h.sample(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look returns the page that q asks for.
func (h *Handler) look(ctx context.Context, q query) (*page, error) {
	if err := h.sample(ctx); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.book.page(q, h.title()), nil
}

// sample asks Fleet unless an answer is fresh. Of several who come at once one
// asks and the others wait for it, at most until their ctx ends.
func (h *Handler) sample(ctx context.Context) error {
	for {
		h.mu.Lock()
		if !h.book.at.IsZero() && time.Since(h.book.at) < fresh {
			h.mu.Unlock()
			return nil
		}
		flight := h.flight
		if flight == nil {
			h.flight = make(chan struct{})
			h.mu.Unlock()
			h.ask(ctx)
			return ctx.Err()
		}
		h.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *Handler) ask(ctx context.Context) {
	defer func() { // also where Fleet panics
		h.mu.Lock()
		defer h.mu.Unlock()
		close(h.flight)
		h.flight = nil
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	fleet := h.Fleet(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.book.add(time.Now(), h.step(), fleet)
}
