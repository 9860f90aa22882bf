package status

import (
	"fmt"
	"html/template"
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
func formatBytes(count uint64) string {
	n := float64(count)
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

func formatRoundTrip(d time.Duration) string {
	switch ms := d.Seconds() * 1000; {
	case d <= 0:
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
