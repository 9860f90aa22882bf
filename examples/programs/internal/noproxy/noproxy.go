// Package noproxy is the command that answers what a no_proxy list means, and to whom.
package noproxy

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/noproxy"
)

const long = `Answers what a no_proxy list means, and to whom: which entry decides (explain), where curl,
Python or a JVM read it in another way than Go (lint). causeway proxyconfig prints the list
that a cluster needs.

With --json each command writes JSON. No command resolves names or opens connections, and
none shows credentials that someone put into a list.`

// Command returns the command.
func Command() *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:     "noproxy",
		Short:   "say what a no_proxy list means, and to which program",
		Long:    long,
		Example: "  causeway noproxy explain --list '.example.com,10.0.0.0/8' registry.example.com 10.1.2.3:443",
	}, explainCommand(), lintCommand())
}

// maxCell is how many bytes of a cell are shown, the last of a row aside. A host has 253.
const maxCell = 300

// writeTable writes rows in columns; an empty cell is a dash, and one with characters that
// do not print is in quotes.
func writeTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			if row[i] = printable.Quote(row[i]); row[i] == "" {
				row[i] = "-"
			}
			if i < len(row)-1 && len(row[i]) > maxCell { // tabwriter makes each row as wide
				row[i] = strings.ToValidUTF8(row[i][:maxCell], "") + "..."
			}
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

func writeExplanations(w io.Writer, answers []noproxy.Explanation) error {
	rows := [][]string{{"TARGET", "VERDICT", "ENTRY", "TEXT", "REASON"}}
	for _, a := range answers {
		target, verdict := a.Host, "through the proxy"
		if a.Port != "" {
			target = net.JoinHostPort(a.Host, a.Port)
		}
		if a.Bypass {
			verdict = "direct"
		}
		rows = append(rows, []string{target, verdict, indexText(a.Index), a.Text, a.Reason})
	}
	return writeTable(w, rows)
}

func writeFindings(w io.Writer, findings []noproxy.Finding) error {
	rows := [][]string{{"CONSUMER", "ENTRY", "TEXT", "DOES", "WRITE"}}
	for _, f := range findings {
		rows = append(rows, []string{f.Consumer.String(), indexText(f.Index), f.Text, f.Does, f.Write})
	}
	return writeTable(w, rows)
}

func indexText(i int) string {
	if i < 0 {
		return ""
	}
	return strconv.Itoa(i)
}
