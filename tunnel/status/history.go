package status

import "math"

// slots is how many points there are to a sparkline.
const slots = 60

// A point is what was seen in one step. Rates and times are NaN where they are
// not known; in a gap streams are too.
type point struct {
	streams       float32
	in, out       float32 // bytes a second
	trip          float32 // seconds
	dials, failed uint32
}

var unknown = float32(math.NaN())

var gap = point{streams: unknown, in: unknown, out: unknown, trip: unknown}

func isKnown(v float32) bool { return v == v }

// history is the last points, on a grid of steps that are counted from the
// first sample on. Its zero value has seen nothing.
type history struct {
	next   int64 // the step after the last that was put
	points [slots]point
}

// put notes what was seen at a step, in place of what was seen earlier in it:
// but dials add up.
func (h *history) put(step int64, p point) {
	if step == h.next-1 {
		was := h.points[step%slots]
		p.dials, p.failed = p.dials+was.dials, p.failed+was.failed
		if !isKnown(p.in) { // the first sample knows no rates
			p.in, p.out = was.in, was.out
		}
	}
	for i := max(h.next, step-slots+1); i < step; i++ {
		h.points[i%slots] = gap
	}
	h.points[step%slots] = p
	h.next = step + 1
}

// until returns the points up to a step, not before the last that was put, the
// oldest first.
func (h *history) until(step int64) (points [slots]point) {
	for i := range points {
		at := step - slots + 1 + int64(i)
		points[i] = gap
		if at >= 0 && at < h.next {
			points[i] = h.points[at%slots]
		}
	}
	return points
}

// dialed returns how many dials there were in the points up to a step.
func (h *history) dialed(step int64) (dials, failed uint32) {
	for _, p := range h.until(step) {
		dials, failed = dials+p.dials, failed+p.failed
	}
	return dials, failed
}
