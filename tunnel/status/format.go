package status

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// formatTime shows a time of day, and the day unless it is today's. It is UTC, so
// that all readers see the same.
func formatTime(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	switch {
	case t.IsZero():
		return "-"
	case t.Year() != now.Year():
		return t.Format("2 Jan 2006 15:04 UTC")
	case t.YearDay() != now.YearDay():
		return t.Format("2 Jan 15:04 UTC")
	}
	return t.Format("15:04:05 UTC")
}

// formatDuration shows the two greatest units.
func formatDuration(d time.Duration) string {
	d = max(d, 0)
	day := 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/day, d%day/time.Hour)
}

// formatBytes uses powers of 1000, and three digits at most.
func formatBytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	i := 0
	for ; n >= 999.5 && i < len(units)-1; i++ {
		n /= 1000
	}
	digits := 0
	if i > 0 && n < 9.95 {
		digits = 1
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + " " + units[i]
}

// formatBrief shows a duration in its greatest unit.
func formatBrief(d time.Duration) string {
	number, rest, _ := strings.Cut(formatDuration(d), " ")
	unit, _, _ := strings.Cut(rest, " ")
	return number + " " + unit
}

// breakableHTML lets an address or a name go on in the next line: behind a colon or an at
// sign, and before what follows the dot of a name. Digits behind a dot stay together.
func breakableHTML(text string) template.HTML {
	var b strings.Builder
	from := 0
	for i := 1; i < len(text); i++ {
		before, next := text[i-1], text[i]
		if before == ':' || before == '@' || before == '.' && (next|0x20 >= 'a' && next|0x20 <= 'z') {
			b.WriteString(template.HTMLEscapeString(text[from:i]) + "<wbr>")
			from = i
		}
	}
	return template.HTML(b.String() + template.HTMLEscapeString(text[from:]))
}

func formatRate(v float32) string {
	if !isKnown(v) {
		return "-"
	}
	return formatBytes(float64(v)) + "/s"
}

func formatRoundTrip(seconds float32) string {
	switch ms := float64(seconds) * 1000; {
	case !isKnown(seconds):
		return "-"
	case ms < 9.95:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
}

func formatCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// sparkline is a small chart: an SVG path in a box of slots by sparklineHeight,
// and what it shows in words.
type sparkline struct {
	Path, Words string
}

// sparklineHeight is the height of a sparkline's box, with the greatest value at
// its top.
const sparklineHeight = 20

// sparklinePath draws value of each point, from zero to most. An unknown point is a
// gap. Points between others of the same height are left out: most lines are flat,
// and there are hundreds on a page.
func sparklinePath(points *[slots]point, most float32, value func(*point) float32) string {
	var path []byte
	last, flat := -1, false // the height of the point before, -1 in a gap
	move := func(verb byte, x, y int) {
		path = append(path, verb)
		path = strconv.AppendInt(path, int64(x), 10)
		if verb != 'H' {
			path = strconv.AppendInt(append(path, ' '), int64(y), 10)
		}
	}
	endFlat := func(x int) {
		if flat {
			move('H', x, 0)
			flat = false
		}
	}
	for x := range points {
		v := value(&points[x])
		if !isKnown(v) {
			endFlat(x - 1)
			last = -1
			continue
		}
		y := sparklineHeight - 1
		if most > 0 {
			y -= int(math.Round(float64(min(v/most, 1)) * (sparklineHeight - 2)))
		}
		switch {
		case last < 0:
			move('M', x, y)
			path = append(path, "h.1"...) // makes a single point visible
		case y == last:
			flat = true
		default:
			endFlat(x - 1)
			move('L', x, y)
		}
		last = y
	}
	endFlat(slots - 1)
	return string(path)
}

// greatestValue is the greatest known value.
func greatestValue(points *[slots]point, value func(*point) float32) (greatest float32) {
	for i := range points {
		if v := value(&points[i]); v > greatest {
			greatest = v
		}
	}
	return greatest
}

func streamsOf(p *point) float32   { return p.streams }
func bytesInOf(p *point) float32   { return p.in }
func bytesOutOf(p *point) float32  { return p.out }
func roundTripOf(p *point) float32 { return p.roundTrip }

// sparklines are the charts of a cluster or of all.
type sparklines struct {
	Streams, Trip sparkline
	In, Out       sparkline // to one scale
}

func newSparklines(points *[slots]point) sparklines {
	s, t := greatestValue(points, streamsOf), greatestValue(points, roundTripOf)
	in, out := greatestValue(points, bytesInOf), greatestValue(points, bytesOutOf)
	scale := max(in, out)
	return sparklines{
		Streams: sparkline{sparklinePath(points, s, streamsOf), "at most " + strconv.Itoa(int(s))},
		Trip:    sparkline{sparklinePath(points, t, roundTripOf), "at most " + formatRoundTrip(t)},
		In:      sparkline{sparklinePath(points, scale, bytesInOf), "at most " + formatRate(in) + " from the cluster, " + formatRate(out) + " to it"},
		Out:     sparkline{Path: sparklinePath(points, scale, bytesOutOf)},
	}
}
