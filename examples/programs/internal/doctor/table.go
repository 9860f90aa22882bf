package doctor

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

const (
	green = "\x1b[32m"
	red   = "\x1b[1;31m"
	faint = "\x1b[2m"
	bold  = "\x1b[1m"
	plain = "\x1b[0m"
)

// table writes a diagnosis for a person.
type table struct {
	w     io.Writer
	color bool
	width int // a line's; 0: lines are not wrapped
	err   error
}

// newTable wraps lines only for terminals: programs search a file or a pipe by line.
func newTable(w io.Writer, color string) *table {
	t := &table{w: w, color: color == "always"}
	if !isTerminal(w) {
		return t
	}
	if color == "auto" {
		t.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	t.width = 80
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= 40 {
		t.width = n
	}
	return t
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (t *table) write(d diagnosis) error {
	for _, row := range [][2]string{{"context", printable.Quote(d.Context)}, {"server", d.Report.Server}, {"route", d.Report.Route}} {
		if row[1] != "" {
			t.writeRow(faint, row[0], "", row[1])
		}
	}
	t.writeLine("")
	for _, s := range d.Report.Steps {
		t.writeStep(s)
	}
	t.writeLine("")
	if failed := d.Report.Failed(); failed != nil {
		t.writeRow(red, "cause", "", string(failed.Phase)+": "+failed.Cause)
		if failed.Advice != "" {
			t.writeRow(bold, "remedy", "", failed.Advice)
		}
	} else {
		t.writeRow(green, "good", "", reachedText(d.Report))
	}
	for _, note := range d.Notes {
		t.writeRow(faint, "note", "", note)
	}
	return t.err
}

func reachedText(r probe.Report) string {
	if r.Version == "" {
		return "the API server is reached"
	}
	return "the API server is reached: " + r.Version
}

// writeStep writes the line of a phase.
func (t *table) writeStep(s probe.Step) {
	mark, color, found := "ok", green, s.Detail
	if s.Err != nil {
		mark, color, found = "FAIL", red, s.Cause
	}
	t.writeRow(color, "  "+mark, fmt.Sprintf("%-10s  %8s", s.Phase, formatDuration(s.Took)), found)
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

// writeRow writes a coloured label, columns and a text, which is wrapped below
// itself.
func (t *table) writeRow(color, label, columns, text string) {
	const labelWidth = 8
	head := fmt.Sprintf("%-*s", labelWidth, label)
	if t.color {
		head = color + label + plain + head[len(label):]
	}
	indent := labelWidth + 1
	if columns != "" {
		indent += utf8.RuneCountInString(columns) + 2
		columns += "  "
	}
	for i, part := range t.wrapText(printable.Text(text, len(text)), indent) {
		if i == 0 {
			t.writeLine(strings.TrimRight(head+" "+columns+part, " "))
		} else {
			t.writeLine(strings.Repeat(" ", indent) + part)
		}
	}
}

// wrapText breaks text at spaces. A word that is longer than a line stays whole:
// people copy addresses.
func (t *table) wrapText(text string, indent int) []string {
	room := t.width - indent
	if t.width == 0 || utf8.RuneCountInString(text) <= room {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= room:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

func (t *table) writeLine(s string) {
	if t.err == nil {
		_, t.err = fmt.Fprintln(t.w, s)
	}
}
