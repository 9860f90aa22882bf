package status

import (
	"context"
	"time"
)

const (
	PerPage = perPage
	Keep    = keepCluster
)

var (
	Size     = formatBytes
	Trip     = formatRoundTrip
	Duration = formatDuration
	Brief    = formatBrief
	Clock    = formatTime
)

// Clusters is how many clusters a handler remembers.
func (h *Handler) Clusters() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.book.clusters)
}

// Sample takes in what the fleet says at a time.
func (h *Handler) Sample(ctx context.Context, at time.Time) {
	fleet := h.Fleet(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.book.addSample(at, fleet)
}
