package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// interopTable is the matrix, in Markdown.
type interopTable struct {
	doors []*door
	rows  []row

	mu    sync.Mutex // guards the field below
	cells [][]string // by row and door
}

func newInteropTable(doors []*door, rows []row) *interopTable {
	t := &interopTable{doors: doors, rows: rows, cells: make([][]string, len(rows))}
	for i := range t.cells {
		t.cells[i] = make([]string, len(doors))
	}
	return t
}

func (t *interopTable) set(door, row int, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cells[row][door] = text
}

func (t *interopTable) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.cells, func(cells []string) bool { return slices.Contains(cells, "") })
}

// String returns the table. What is longer than a word stands below it.
func (t *interopTable) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var s strings.Builder
	var notes []string
	note := func(text string) string {
		if !strings.Contains(text, " ") {
			return text
		}
		for i, n := range notes {
			if n == text {
				return fmt.Sprintf("[%d]", i+1)
			}
		}
		notes = append(notes, text)
		return fmt.Sprintf("[%d]", len(notes))
	}
	s.WriteString("| |")
	for _, d := range t.doors {
		s.WriteString(" " + d.name + " |")
	}
	s.WriteString("\n| --- |" + strings.Repeat(" --- |", len(t.doors)) + "\n")
	for i, r := range t.rows {
		s.WriteString("| " + r.name + " |")
		for _, text := range t.cells[i] {
			s.WriteString(" " + note(text) + " |")
		}
		s.WriteString("\n")
	}
	for i, n := range notes {
		fmt.Fprintf(&s, "\n[%d] %s", i+1, n)
		if i+1 < len(notes) {
			s.WriteString("\\") // a line of its own
		}
	}
	s.WriteString("\n")
	return s.String()
}

const tableBegin, tableEnd = "<!-- interop: written by internal/e2e -->\n", "<!-- /interop -->"

// check wants the table to stand in a file as it is; with
// CAUSEWAY_E2E_UPDATE=1 it puts it there.
func (t *interopTable) check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	got, after, ended := strings.Cut(rest, tableEnd)
	switch want := t.String(); {
	case !ok || !ended:
		return fmt.Errorf("%s has no %q", path, tableBegin)
	case got == want:
		return nil
	case os.Getenv("CAUSEWAY_E2E_UPDATE") == "1":
		return os.WriteFile(path, []byte(before+tableBegin+want+tableEnd+after), 0o644)
	default:
		return fmt.Errorf("the table of %s is not what ran (CAUSEWAY_E2E_UPDATE=1 writes it); got\n%s\nwant\n%s", path, got, want)
	}
}
