package status

import (
	"math"
	"strconv"
)

// A spark is a small chart: the path of an SVG of slots by tall, and what it
// shows in words.
type spark struct {
	Path, Words string
}

// tall is the height of a sparkline's box; the greatest value is at its top.
const tall = 20

// line draws what value makes of each point, from zero up to the most. A point
// that is not known is a gap. Points between others of the same height are left
// out: most lines are flat, and there are hundreds on a page.
func line(points *[slots]point, most float32, value func(*point) float32) string {
	var path []byte
	last, flat := -1, false // the height of the point before, -1 in a gap
	move := func(verb byte, x, y int) {
		path = append(path, verb)
		path = strconv.AppendInt(path, int64(x), 10)
		if verb != 'H' {
			path = strconv.AppendInt(append(path, ' '), int64(y), 10)
		}
	}
	rest := func(x int) { // ends a flat piece
		if flat {
			move('H', x, 0)
			flat = false
		}
	}
	for x := range points {
		v := value(&points[x])
		if !isKnown(v) {
			rest(x - 1)
			last = -1
			continue
		}
		y := tall - 1
		if most > 0 {
			y -= int(math.Round(float64(min(v/most, 1)) * (tall - 2)))
		}
		switch {
		case last < 0:
			move('M', x, y)
			path = append(path, "h.1"...) // a point alone is seen, too
		case y == last:
			flat = true
		default:
			rest(x - 1)
			move('L', x, y)
		}
		last = y
	}
	rest(slots - 1)
	return string(path)
}

// most is the greatest known value.
func most(points *[slots]point, value func(*point) float32) (greatest float32) {
	for i := range points {
		if v := value(&points[i]); v > greatest {
			greatest = v
		}
	}
	return greatest
}

func streams(p *point) float32  { return p.streams }
func bytesIn(p *point) float32  { return p.in }
func bytesOut(p *point) float32 { return p.out }
func tripOf(p *point) float32   { return p.trip }

// sparks are the charts of a cluster or of all.
type sparks struct {
	Streams, Trip spark
	In, Out       spark // to one scale
}

func newSparks(points *[slots]point) sparks {
	s, t := most(points, streams), most(points, tripOf)
	in, out := most(points, bytesIn), most(points, bytesOut)
	scale := max(in, out)
	return sparks{
		Streams: spark{line(points, s, streams), "at most " + strconv.Itoa(int(s))},
		Trip:    spark{line(points, t, tripOf), "at most " + trip(t)},
		In:      spark{line(points, scale, bytesIn), "at most " + rate(in) + " from the cluster, " + rate(out) + " to it"},
		Out:     spark{Path: line(points, scale, bytesOut)},
	}
}
