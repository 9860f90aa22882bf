package provider

import (
	"io"
	"net/http"
	"sync"
)

// health is what probes of the process are told.
type health struct {
	mu    sync.Mutex // guards the fields below
	ready bool
	ended bool
	last  error // why it isn't ready
}

func (h *health) synced() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = true
}

func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = err
}

func (h *health) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// Healthz answers 200, and 503 once Run has returned.
func (p *Provider) Healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.health.mu.Lock()
		ended := p.health.ended
		p.health.mu.Unlock()
		answer(w, !ended, "the provider has ended")
	})
}

// Readyz answers 200 while Run has its caches filled, as a leader or in
// waiting, and 503 otherwise, with a reason.
func (p *Provider) Readyz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.health.mu.Lock()
		ready, last := p.health.ready && !p.health.ended, p.health.last
		p.health.mu.Unlock()
		reason := "the caches are not filled"
		if last != nil {
			reason = last.Error()
		}
		answer(w, ready, reason)
	})
}

func answer(w http.ResponseWriter, ok bool, reason string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if ok {
		io.WriteString(w, "ok\n")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, reason+"\n")
}
