// Noproxy answers what a no_proxy list means, and to whom.
//
// Why does this pod not use the proxy, or why does it? Which entry decides:
//
//	$ noproxy explain -list '.svc,10.96.0.0/12,example.com:8443' https://10.96.0.1/ example.com:443
//	TARGET           VERDICT            ENTRY  TEXT          REASON
//	10.96.0.1:443    direct             1      10.96.0.0/12  an address of the network
//	example.com:443  through the proxy  -      -             no entry covers it; entry 2 "example.com:8443" is for port 8443 only
//
// curl in a script, Python in a sidecar and a JVM read the same list. See how each
// reads it, and what to write instead:
//
//	$ noproxy lint -for wget,urllib -list 'localhost,127.0.0.1,[::1],*.example.com'
//	CONSUMER  ENTRY  TEXT           DOES                                                                          WRITE
//	wget      -      -              sends ::1 through the proxy unless it is listed                               localhost,127.0.0.1,::1
//	wget      3      *.example.com  sends https://www.example.com/ through the proxy, where Go connects directly  ".example.com" for it
//	urllib    3      *.example.com  sends https://www.example.com/ through the proxy, where Go connects directly  "example.com" if the name itself may be reached directly
//
// Lint exits with status 1 if it finds something, so it can guard a chart in CI.
//
// The list of a cluster, in full or in the form for one program:
//
//	$ noproxy cluster -pods 10.244.0.0/16 -services 10.96.0.0/12 -cloud azure -for wget
//
// With -json each command writes JSON. Consumers are go, curl, wget, urllib,
// requests, ruby, undici and jvm. No command resolves names, opens connections
// or reads the environment, and none shows credentials that someone put into a
// list, but for the list of a cluster itself.
package noproxy

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/noproxy"
)

const usage = `usage:
  noproxy explain -list LIST [-json] TARGET...
  noproxy lint    -list LIST [-for CONSUMERS] [-json]
  noproxy cluster [-pods CIDRS] [-services CIDRS] [-nodes CIDRS] [-for CONSUMER] [-json] ...

A TARGET is a host, host:port or URL. Run "noproxy COMMAND -h" for all flags.
`

// Run runs a command of noproxy.
func Run(_ context.Context, args []string, _ io.Reader, stdout, _ io.Writer) error {
	if len(args) == 0 {
		return usageError("no command")
	}
	var err error
	switch command, args := args[0], args[1:]; command {
	case "explain":
		err = runExplain(args, stdout)
	case "lint":
		err = runLint(args, stdout)
	case "cluster":
		err = runCluster(args, stdout)
	case "help", "-h", "-help", "--help":
		_, err = io.WriteString(stdout, usage)
	default:
		err = usageError(fmt.Sprintf("unknown command %q", command))
	}
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	return err
}

// usageError is a mistake on the command line.
func usageError(text string) error { return cli.UsageError{Text: "noproxy: " + text} }

// parse parses the flags of a command. Help goes to stdout.
func parse(flags *flag.FlagSet, args []string, stdout io.Writer) error {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "flags of noproxy %s:\n", flags.Name())
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return err
	case err != nil:
		return usageError(flags.Name() + ": " + err.Error())
	}
	return nil
}

// isSet reports whether a flag was given: an empty list is one, no list is not.
func isSet(flags *flag.FlagSet, name string) bool {
	found := false
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// writeTable writes rows in columns; an empty cell is a dash.
func writeTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			if row[i] == "" {
				row[i] = "-"
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

// writeCluster writes the list on the first line, for scripts.
func writeCluster(w io.Writer, r clusterResult) error {
	fmt.Fprintf(w, "%s\n\n", r.List)
	if r.For != "" {
		if len(r.Findings) == 0 {
			return nil
		}
		return writeFindings(w, r.Findings)
	}
	rows := [][]string{{"ENTRY", "FROM", "LEFT OUT"}}
	for _, e := range r.Entries {
		out := e.Skipped
		if e.Within != "" {
			out = "within " + e.Within
		}
		rows = append(rows, []string{e.Text, e.From, out})
	}
	return writeTable(w, rows)
}

func indexText(i int) string {
	if i < 0 {
		return ""
	}
	return strconv.Itoa(i)
}
