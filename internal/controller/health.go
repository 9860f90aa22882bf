package controller

import (
	"io"
	"net/http"
	"sync"
)

// Health answers probes of the process. The zero Health is alive, and
// not ready.
type Health struct {
	mu    sync.Mutex // guards the fields below
	ready bool
	ended bool
	last  error // why it isn't ready
}

// Synced makes it ready.
func (h *Health) Synced() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = true
}

// Failed says why it isn't ready.
func (h *Health) Failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = err
}

// End makes it neither ready nor alive.
func (h *Health) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// Healthz answers 200, and 503 with ended after End.
func (h *Health) Healthz(ended string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		alive := !h.ended
		h.mu.Unlock()
		writeAnswer(w, alive, ended)
	})
}

// Readyz answers 200 from Synced to End, and 503 otherwise, with a reason.
func (h *Health) Readyz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		ready, last := h.ready && !h.ended, h.last
		h.mu.Unlock()
		reason := "the caches are not filled"
		if last != nil {
			reason = last.Error()
		}
		writeAnswer(w, ready, reason)
	})
}

func writeAnswer(w http.ResponseWriter, ok bool, reason string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if ok {
		io.WriteString(w, "ok\n")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, reason+"\n")
}
