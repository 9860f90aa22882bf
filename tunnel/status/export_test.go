package status

import (
	"context"
	"time"
)

const (
	Slots   = slots
	PerPage = perPage
	Keep    = keep
)

var (
	Size     = size
	Rate     = rate
	Trip     = trip
	Duration = duration
	Brief    = brief
	Clock    = clock
)

// Gap is what a point of Line is that is not known.
var Gap = unknown

// Line draws the values, the newest last.
func Line(values []float32) string {
	var points [slots]point
	for i := range points {
		points[i] = gap
	}
	for i, v := range values {
		points[slots-len(values)+i].streams = v
	}
	return line(&points, most(&points, streams), streams)
}

// History puts streams at steps, and returns the streams of the last slots
// steps up to another.
func History(steps []int64, until int64) (got []float32) {
	var h history
	for _, step := range steps {
		h.put(step, point{streams: float32(step)})
	}
	points := h.until(until)
	for i := range points {
		got = append(got, points[i].streams)
	}
	return got
}

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
	h.book.add(at, h.step(), fleet)
}
