package doctor

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
)

// writeTable writes a diagnosis for a person.
func writeTable(w io.Writer, d diagnosis) error {
	var b strings.Builder
	writeRow := func(label, text string) {
		fmt.Fprintf(&b, "%-8s %s\n", label, printable.Text(text, len(text)))
	}
	for _, row := range [][2]string{{"context", printable.Quote(d.Context)}, {"server", d.Report.Server}, {"route", d.Report.Route}} {
		if row[1] != "" {
			writeRow(row[0], row[1])
		}
	}
	b.WriteString("\n")
	for _, s := range d.Report.Steps {
		mark, found := "ok", s.Detail
		if s.Err != nil {
			mark, found = "FAIL", s.Cause
		}
		writeRow("  "+mark, strings.TrimRight(fmt.Sprintf("%-10s  %8s  %s", s.Phase, formatDuration(s.Took), found), " "))
	}
	b.WriteString("\n")
	if failed := d.Report.Failed(); failed != nil {
		writeRow("cause", string(failed.Phase)+": "+failed.Cause)
		if failed.Advice != "" {
			writeRow("remedy", failed.Advice)
		}
	} else {
		writeRow("good", strings.TrimSuffix("the API server is reached: "+d.Report.Version, ": "))
	}
	for _, note := range d.Notes {
		writeRow("note", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func formatDuration(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
}
