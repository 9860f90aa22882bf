package status

import (
	"context"
	"time"
)

const (
	Slots   = slots
	PerPage = perPage
	Keep    = keepCluster
)

var (
	Size     = formatBytes
	Rate     = formatRate
	Trip     = formatRoundTrip
	Duration = formatDuration
	Brief    = formatBrief
	Clock    = formatTime
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
	return sparklinePath(&points, greatestValue(&points, streamsOf), streamsOf)
}

// History puts streams at steps, and returns the streams of the last slots
// steps up to another.
func History(steps []int64, until int64) (got []float32) {
	var h history
	for _, step := range steps {
		h.addPoint(step, point{streams: float32(step)})
	}
	points := h.pointsUntil(until)
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
	h.book.addSample(at, h.step(), fleet)
}
