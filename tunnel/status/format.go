package status

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// clock is a time of day, and the day where it is not that of now. All who look
// see the same, wherever they are.
func clock(t, now time.Time) string {
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

// duration is rounded down to what a person wants to know.
func duration(d time.Duration) string {
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

// size is in powers of 1000, with three digits at most.
func size(n float64) string {
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

// brief is a duration in its greatest unit.
func brief(d time.Duration) string {
	number, rest, _ := strings.Cut(duration(d), " ")
	unit, _, _ := strings.Cut(rest, " ")
	return number + " " + unit
}

func rate(v float32) string {
	if !isKnown(v) {
		return "-"
	}
	return size(float64(v)) + "/s"
}

// trip is a round-trip time.
func trip(seconds float32) string {
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

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
