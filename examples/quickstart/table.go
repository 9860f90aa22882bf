package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// columns are the phases, in the order in which they come about.
var columns = []string{"dns", "tcp", "proxy tls", "connect", "tls", "list"}

// printTable prints a row for each attempt.
func printTable(w io.Writer, attempts []attempt) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "ROUTE\t%s\tAPI SERVER\n", strings.ToUpper(strings.Join(columns, "\t")))
	for _, a := range attempts {
		cells := []string{a.route}
		for _, c := range columns {
			cells = append(cells, milliseconds(a.times[c]))
		}
		last := a.answer
		if a.err != nil {
			last = "FAILED: " + shortError(a.err).Error()
		}
		fmt.Fprintln(tw, strings.Join(append(cells, last), "\t"))
	}
	tw.Flush()
}

func milliseconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fms", float64(d.Microseconds())/1000)
}
